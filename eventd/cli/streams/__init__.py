"""routerctl stream and cache.

May import: cli.federation, cli.gateway, cli.program, cli.terminal, cli.topics, client, quic, runtime, streams, text.
"""
