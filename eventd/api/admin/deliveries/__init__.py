"""Links under /api/v1: their state, the deliveries over them, their dead letters, and the map.

May import: api.framework, egress, egress.routers, groups, log.core, log.cursors, log.delivery, log.topics,
    log.witnesses, observe, resources, runtime, store.engine, store.rows.
"""
