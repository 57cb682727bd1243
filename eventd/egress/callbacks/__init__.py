"""Callbacks as sinks: what is pushed to an HTTP endpoint, in which form, and what its answers mean.

May import: egress.loop, egress.peers, egress.transport, log.core, log.cursors, log.topics, net, resources,
    runtime, store.engine, store.rows, text, tracing.
"""
