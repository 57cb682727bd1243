"""The API framework: what a route is, how requests are admitted, read within bounds, answered and described.

May import: api.bodies, api.errors, api.listener, dynamic, log.core, log.topics, observe, resources, resources.reading,
    runtime, settings, store.engine, store.rows, text.
"""
