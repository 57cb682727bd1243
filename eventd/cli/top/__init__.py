"""routerctl top: links, topics, queues and callbacks as they change, on one screen.

May import: cli.gateway, cli.terminal, runtime, text.
"""
