"""Bulk jobs: one action on many dead letters or links, planned first and then done in steps.

May import: api.admin.callbacks, api.admin.deliveries, api.admin.subscriptions, api.framework, api.keys, egress,
    groups, log.core, log.cursors, log.delivery, runtime, store.engine, store.rows.
"""
