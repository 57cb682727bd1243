"""Removes records: the only deleter of prefixes, the only rewriter of blocks, and eviction from groups.

May import: log.core, log.cursors, store.engine, store.rows, store.schema.
"""
