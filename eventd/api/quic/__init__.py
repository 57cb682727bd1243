"""Streams over QUIC: sessions, publishes, subscriptions, and the cache.

May import: runtime, streams.
"""
