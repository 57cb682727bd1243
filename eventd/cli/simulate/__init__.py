"""routerd-eventd simulate: whole nodes on virtual time, with faults.

May import: cli.program, cli.terminal, runtime, settings, simulation, simulation.faults, store.schema, text.
"""
