"""Events under /api/v1: emits, lists, searches, describes and exports them.

May import: api.admin.deliveries, api.admin.resources, api.admin.subscriptions, api.bodies, api.errors, api.framework,
    api.listener, dynamic, groups, ingress, lake.extract, log.core, log.delivery, log.history, log.witnesses,
    resources, resources.kinds, resources.reading, store.engine, store.parts, store.rows, text.
"""
