"""routerctl console: the console of many nodes, served on the machine of an operator.

May import: cli.gateway, cli.terminal, client, console.many, runtime, settings.
"""
