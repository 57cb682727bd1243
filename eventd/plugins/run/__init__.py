"""Runs plugins, both programs and entry points.

May import: dynamic, log.core, plugins.author, plugins.contract, processes, resources, resources.reading,
    resources.validation, runtime, store.engine, store.parts, store.rows, text, tracing.
"""
