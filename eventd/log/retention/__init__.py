"""Eviction of the oldest events of a group.

May import: log.core, log.cursors, store.engine, store.rows, store.schema.
"""
