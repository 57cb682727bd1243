"""Callbacks under /api/v1: shows their state, sends events again, and moves their position.

May import: api.admin.deliveries, api.framework, egress, egress.callbacks, groups, log.core, log.cursors, log.delivery,
    resources, store.engine, store.rows.
"""
