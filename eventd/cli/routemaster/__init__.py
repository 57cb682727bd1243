"""routerctl routemaster.

May import: cli.gateway, cli.terminal.
"""
