"""The Routemaster surface: an HTTP API of its own, on a listener of its own, for existing clients of Routemaster.

May import: api.bodies, api.errors, api.framework, api.keys, api.listener, log.core, log.routemaster, log.topics, net,
    settings, store.rows, text, tls.
"""
