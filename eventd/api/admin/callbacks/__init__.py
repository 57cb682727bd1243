"""Callbacks under /api/v1: their state, events sent again, and a position set anew.

May import: api.framework, egress, egress.callbacks, groups, log.core, log.cursors, log.delivery, resources,
    store.engine, store.rows.
"""
