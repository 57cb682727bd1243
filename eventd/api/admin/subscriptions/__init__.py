"""Subscriptions and plugins under /api/v1: shows their states and runs, and runs plugins on request.

May import: api.framework, dynamic, egress, egress.subscriptions, groups, log.core, log.cursors, log.delivery,
    plugins.contract, plugins.run, resources, resources.kinds, resources.validation, runtime, settings, store.engine,
    store.parts, store.rows, text.
"""
