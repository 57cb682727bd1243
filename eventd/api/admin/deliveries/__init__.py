"""Links under /api/v1: what was delivered over them, what ended as a dead letter, and the map.

May import: api.framework, egress, egress.routers, groups, log.core, log.cursors, log.delivery, log.topics, observe,
    resources, runtime, store.engine, store.rows.
"""
