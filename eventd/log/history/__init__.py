"""The trees of what a node admitted: their rows, and the sealing of new records into tiles and signed checkpoints.

May import: log.core, store.engine, store.ids.
"""
