"""routerctl plugin.

May import: api.admin, cli.gateway, cli.terminal, plugins.author, plugins.contract, plugins.run, runtime, text.
"""
