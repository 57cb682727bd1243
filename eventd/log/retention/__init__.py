"""Removing records: the one deleter of prefixes, the one rewriter of blocks, and eviction from groups.

May import: log.core, log.cursors, store.engine, store.rows, store.schema.
"""
