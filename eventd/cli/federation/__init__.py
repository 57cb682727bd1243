"""routerctl federation, subscription and verify.

May import: cli.gateway, cli.history, cli.program, cli.terminal, runtime, text.
"""
