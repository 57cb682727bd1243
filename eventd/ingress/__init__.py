"""Receiving from peers: prove the sender, admit the events, store them with the link's mark and the receipt. May
import: log.core, log.delivery, resources, runtime, store.engine, store.rows.
"""

from __future__ import annotations
