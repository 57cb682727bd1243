"""The HTTP listener: connections, parsing, WebSocket frames, and limits on clients that have proven no key.

May import: api.bodies, api.errors, net, runtime, tls.
"""
