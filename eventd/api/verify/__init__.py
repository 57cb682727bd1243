"""Verify: compares what the delivery ledger says a peer has with what the peer holds.

May import: api.admin, api.framework, egress.peers, groups, log.core, log.cursors, log.delivery, resources, runtime,
    store.engine.
"""

from __future__ import annotations
