"""Declared resources: from files to what the node runs on.

May import: log.core, log.topics, resources.kinds, resources.reading, resources.validation, runtime, settings,
    store.engine, store.rows, text.
"""
