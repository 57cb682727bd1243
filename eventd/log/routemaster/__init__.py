"""The Routemaster surface in the log: claims, events, subscriptions and tokens, each change as one unit.

May import: log.core, log.cursors, log.topics, runtime, store.engine, store.rows.
"""
