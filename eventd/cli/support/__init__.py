"""routerctl support-bundle: settings, states, metrics and logs of a node, without secrets, in one archive.

May import: api.framework, cli.gateway, cli.terminal, resources.kinds, runtime, settings, store.engine, text.
"""
