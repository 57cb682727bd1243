"""Routers, which copy records between topics, all those of one source in step.

May import: dynamic, log.core, log.routers, log.topics, resources, resources.kinds, resources.reading,
    resources.validation, runtime, store.engine, store.rows, text.
"""
