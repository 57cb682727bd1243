"""Verify: compares the deliveries that this node has recorded for a peer with the events that the peer holds.

May import: api.admin, api.framework, egress.peers, groups, log.core, log.cursors, log.delivery, resources, runtime,
store.engine.
"""

from __future__ import annotations
