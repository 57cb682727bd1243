"""routerctl lake.

May import: cli.gateway, cli.terminal, lake, runtime, settings, text.
"""
