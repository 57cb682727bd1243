"""Peers as sinks: protocols v1 and v2, what answers mean for a link, and the memory for outbound batches.

May import: egress.loop, egress.transport, log.core, log.cursors, log.delivery, log.history, net, resources, runtime,
    text, tls, tracing.
"""
