"""routerctl assets: the files beside the program, for service managers, clusters and monitoring.

May import: cli.gateway, cli.terminal, text.
"""
