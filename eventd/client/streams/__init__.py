"""A client of streams over QUIC: publishes, subscribes, and uses caches.

May import: client.refusals, quic, runtime, streams, tls.
"""
