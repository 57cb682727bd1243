"""routerctl doctor, key and db.

May import: cli.gateway, cli.program, cli.terminal, log.core, runtime, settings, store.backup, store.engine,
    store.schema, text.
"""
