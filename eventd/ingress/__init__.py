"""Receiving from peers: proves the sender, admits the events, stores them with the link's mark and the receipt.

May import: log.core, log.delivery, log.history, resources, runtime, store.engine, store.rows, tracing.
"""

from __future__ import annotations
