"""routerctl callback.

May import: cli.gateway, runtime.
"""
