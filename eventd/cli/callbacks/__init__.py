"""routerctl callback.

May import: cli.federation, cli.gateway, cli.resources, cli.terminal, runtime, text.
"""
