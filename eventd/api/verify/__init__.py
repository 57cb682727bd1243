"""Verifies a peer: compares the deliveries recorded for it with the events that it holds; a receipt is no proof.

May import: api.admin, api.framework, egress.peers, groups, log.core, log.cursors, log.delivery, resources, runtime,
store.engine, text.
"""

from __future__ import annotations
