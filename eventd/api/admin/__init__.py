"""What /api/v1 serves for the whole node: keys, actions, queues, settings, conditions. The rooms in it serve the rest.

May import: api.admin.callbacks, api.admin.deliveries, api.admin.events, api.admin.resources, api.admin.subscriptions,
    api.framework, api.keys, egress.lake, lake, lake.extract, log.core, log.cursors, log.delivery, log.queues,
    log.routemaster, resources.kinds, runtime, settings, store.engine, store.rows, text.
"""
