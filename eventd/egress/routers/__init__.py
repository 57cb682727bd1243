"""Routers, which copy records between topics, all those of one source in step.

May import: dynamic, log.core, log.routers, log.topics, resources, runtime, store.engine, text.
"""
