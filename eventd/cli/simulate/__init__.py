"""routerd-eventd simulate: whole nodes on virtual time, with faults.

May import: cli.terminal, runtime, settings, simulation, simulation.faults, store.schema, text.
"""
