"""routerctl federation, subscription and verify.

May import: cli.gateway, cli.program, cli.terminal, runtime, text.
"""
