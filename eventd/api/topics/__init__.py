"""The routes under /v0: topics, records, routers, watches and queues.

May import: api.bodies, api.errors, api.framework, api.keys, api.listener, egress.routers, log.core, log.queues,
    log.routers, log.topics, observe, runtime, store.engine, store.rows, text.
"""
