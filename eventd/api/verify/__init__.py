"""Verifies a peer: compares the deliveries recorded for it with the events that it holds; receipts do not count.

May import: api.admin.deliveries, api.admin.resources, api.errors, api.framework, egress.peers, egress.transport,
    groups, log.core, log.cursors, log.delivery, resources, runtime, store.engine, store.rows, text.
"""

from __future__ import annotations
