"""The node: builds, starts and stops everything, and reconciles it with the declared resources.

May import: api, api.admin.bulk, api.framework, api.keys, api.listener, api.peers, api.quic, api.routemaster,
    api.topics, console, dynamic, egress, egress.callbacks, egress.lake, egress.loop, egress.peers, egress.routers,
    egress.subscriptions, egress.transport, groups, ingress, lake, log.core, log.cursors, log.history,
    log.retention, log.routemaster, log.topics, log.witnesses, net, observe, plugins.run, quic, resources, runtime,
    settings, store.engine, store.parts, store.rows, store.schema, text, tls, witnessing.
"""
