"""The ways out of the log: consumers with a cursor each, and the pump that moves all routers.

May import: dynamic, egress.callbacks, egress.loop, egress.subscriptions, log.core, log.cursors, log.delivery,
    resources, store.engine, store.parts, store.rows.
"""

from __future__ import annotations
