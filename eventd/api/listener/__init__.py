"""The HTTP listener: connections, parsing, WebSocket frames, and what a stranger can make them hold.

May import: api.bodies, api.errors, runtime.
"""
