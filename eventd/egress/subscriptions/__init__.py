"""Subscriptions as sinks: triggers, windows, and runs of plugins.

May import: dynamic, egress.loop, log.core, log.cursors, plugins.contract, plugins.run, resources, store.engine,
    store.parts, store.rows, text, tracing.
"""
