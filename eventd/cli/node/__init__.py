"""routerctl context, doctor, key and db.

May import: cli.gateway, cli.program, cli.terminal, log.core, net, runtime, settings, store.backup, store.engine,
    store.schema, text.
"""
