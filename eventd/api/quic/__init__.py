"""Streams over QUIC: sessions, publishes, subscriptions, and the cache.

May import: api.framework, api.keys, api.topics, log.core, log.topics, observe, quic, resources, runtime, settings,
    store.engine, streams, text.
"""
