"""Simulation of whole nodes in one process, on virtual time, with faults, from one seed.

May import: runtime, simulation.checks, simulation.faults, simulation.load, simulation.world, store.engine,
    store.schema, text.
"""
