"""Declared resources: from files to the configuration a node runs with.

May import: log.core, log.topics, resources.kinds, resources.reading, resources.validation, runtime, settings,
store.engine, store.rows, text.
"""
