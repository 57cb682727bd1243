"""routerctl support-bundle: what is known of a node, without secrets, in one archive.

May import: api.framework, cli.gateway, cli.terminal, runtime, settings, store.engine, text.
"""
