"""The HTTP listener, over TCP, TLS and the local socket: parsing, WebSocket frames, limits on unproven clients.

May import: api.bodies, api.errors, net, runtime, tls.
"""
