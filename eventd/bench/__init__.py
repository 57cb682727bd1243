"""The measurements of `routerctl bench`: load, nodes, and the check that everything arrived.

May import: api.errors, api.framework, client, client.streams, net, quic, runtime, streams, text,
    tls.
"""
