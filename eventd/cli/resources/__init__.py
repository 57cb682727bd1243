"""routerctl apply, diff, get, describe, delete and dynamic.

May import: cli.federation, cli.gateway, cli.program, cli.terminal, resources.reading, runtime, text.
"""
