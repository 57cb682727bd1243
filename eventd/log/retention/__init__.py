"""Removes records: the only deleter of prefixes, the only rewriter of blocks, and eviction from groups' topics.

The retention of topics of records, by their caps and their time to live, is in `eventd.log.topics.limits`.

May import: log.core, log.cursors, log.history, runtime, store.engine, store.ids, store.rows.
"""
