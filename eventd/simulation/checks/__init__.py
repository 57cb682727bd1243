"""The checks of a run: what must hold, by the answers of nodes and by their tables.

May import: simulation.faults, simulation.load, simulation.world.
"""
