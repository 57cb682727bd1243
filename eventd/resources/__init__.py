"""Declared resources: from files to the configuration of a running node.

May import: log.core, log.topics, net, resources.kinds, resources.reading, resources.validation, runtime, settings,
    store.engine, store.rows, streams, text, tls.
"""
