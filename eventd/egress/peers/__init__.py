"""Peers as sinks: protocols v1 and v2, the transport, and the memory for outbound batches.

May import: egress.loop, log.core, log.cursors, log.delivery, net, resources, runtime, tls.
"""
