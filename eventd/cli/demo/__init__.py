"""routerd-eventd demo: three nodes, one of which is killed.

May import: bench, cli.program, runtime.
"""
