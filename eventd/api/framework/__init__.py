"""The API framework: routes, admission, bounded request reading, responses, and the OpenAPI description.

May import: api.bodies, api.errors, api.keys, api.listener, dynamic, egress.callbacks, log.core, log.retention,
    log.topics, net, observe, resources, resources.reading, runtime, settings, store.engine, store.rows, text, tls,
    tracing.
"""
