"""Reads the state of applied event groups (peers, topic, links, subscriptions), and applies their retention.

May import: egress, egress.callbacks, egress.subscriptions, log.core, log.cursors, log.delivery, log.retention,
    log.routemaster, log.topics, resources, resources.kinds, resources.validation, runtime, store.engine, store.parts,
    store.rows, text.
"""
