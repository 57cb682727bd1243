"""What /api/v1 serves besides doctor and verify: resources, events, deliveries, links, subscriptions, plugins, keys.

May import: api.bodies, api.framework, dynamic, egress, egress.callbacks, egress.lake, egress.routers,
    egress.subscriptions, groups, ingress, lake, lake.extract, log.core, log.cursors, log.delivery, log.queues,
    log.routemaster, log.routers, log.topics, observe, plugins.contract, plugins.run, resources, resources.kinds,
    resources.reading, resources.validation, runtime, settings, store.engine, store.parts, store.rows, text.
"""
