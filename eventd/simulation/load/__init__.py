"""The load of a run: what clients ask of the nodes, one file for each kind of load.

May import: simulation.world.
"""
