"""The checks of a run: what must hold, by the answers of nodes and by their tables.

May import: egress.peers, groups, ingress, log.core, log.cursors, log.retention, observe, simulation.faults,
simulation.load, simulation.world, store.engine.
"""
