"""Validates resources, individually and against each other.

May import: resources.kinds, resources.reading, store.rows, streams, text.
"""
