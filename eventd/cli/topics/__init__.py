"""routerctl topic, router, topology and watch.

May import: cli.gateway, cli.program, cli.terminal, client, egress.routers, log.core, text.
"""
