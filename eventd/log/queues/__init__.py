"""Queues: jobs of a topic, leased to competing clients.

May import: log.core, log.retention, log.topics, runtime, store.engine, store.rows.
"""
