"""routerctl callback.

May import: cli.gateway, cli.terminal, runtime.
"""
