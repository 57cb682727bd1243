"""Connects a command to a node: over TCP, its local socket, or its database.

May import: api, api.errors, api.framework, api.keys, api.listener, api.topics, cli.program, cli.terminal, client,
    dynamic, egress.callbacks, egress.routers, egress.transport, lake, log.core, net, observe, resources,
    resources.kinds, runtime, settings, store.engine, store.rows, store.schema, text, tls.
"""
