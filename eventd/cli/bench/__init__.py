"""routerctl bench.

May import: bench, cli.gateway, cli.program, cli.terminal, settings, text.
"""
