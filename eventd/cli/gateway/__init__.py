"""Connects a command to a node: through its database, or through its API.

May import: api, api.errors, api.framework, api.listener, api.topics, cli.program, cli.terminal, client, dynamic,
    egress.routers, log.core, net, observe, resources, runtime, settings, store.engine, store.rows, store.schema, tls.
"""
