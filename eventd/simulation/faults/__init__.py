"""The faults of a run: planned in advance, at times or at steps of a machine, and what each of them does.

May import: simulation.world.
"""
