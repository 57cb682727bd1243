"""routerctl apply, diff, get, describe, delete, edit, wait, explain, api-resources and dynamic.

May import: cli.federation, cli.gateway, cli.program, cli.terminal, resources.kinds, resources.reading, runtime, text.
"""
