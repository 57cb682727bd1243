"""routerctl plugin.

May import: api.admin.subscriptions, cli.gateway, cli.terminal, plugins.author, plugins.contract, plugins.run, runtime,
    text.
"""
