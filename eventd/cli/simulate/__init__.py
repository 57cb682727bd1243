"""routerd-eventd simulate: whole nodes on virtual time, with faults.

May import: cli.terminal, settings, simulation.
"""
