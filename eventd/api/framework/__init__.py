"""What every route is made of: operations, parameters, keys and scopes, callers, worker processes.

May import: api.errors, api.listener, dynamic, log.core, observe, resources, resources.reading, runtime, settings,
    store.engine, store.rows, text.
"""
