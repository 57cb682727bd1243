"""Applied event groups as the database has them: their peers and topic, links, subscriptions and retention.

May import: egress, egress.subscriptions, log.core, log.cursors, log.delivery, log.retention, resources,
    resources.kinds, runtime, store.engine, store.rows.
"""
