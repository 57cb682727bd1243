"""routerctl lake.

May import: cli.gateway, cli.program, cli.terminal, lake, runtime, text.
"""
