"""Topics of records: configuration, writes, pages, limits, deletion.

May import: log.core, log.cursors, log.history, log.retention, runtime, store.engine, store.ids, store.rows,
    store.schema, text.
"""
