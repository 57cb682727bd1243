"""The ways out of the log: each is a consumer with a cursor.

May import: dynamic, egress.subscriptions, log.core, log.cursors, log.delivery, resources, store.engine, store.parts,
    store.rows.
"""

from __future__ import annotations
