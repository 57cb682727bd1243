"""Resources under /api/v1: applies, compares, lists and describes them; and the dynamic configuration.

May import: api.admin.callbacks, api.admin.deliveries, api.admin.subscriptions, api.framework, dynamic, egress,
    egress.routers, groups, log.core, log.cursors, log.delivery, log.retention, log.routers, log.topics, resources,
    resources.kinds, resources.reading, resources.validation, runtime, store.engine, store.parts, store.rows, text.
"""
