"""Positions in commit order, blocks of records, pages, and the one writer.

May import: log.cursors, runtime, store.engine, store.ids, store.rows, store.schema, tracing.
"""
