"""routerctl apply, diff, get, describe, delete and dynamic.

May import: cli.federation, cli.gateway, cli.terminal, resources.reading, runtime, text.
"""
