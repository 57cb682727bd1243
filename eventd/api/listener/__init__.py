"""The HTTP listener: connections, parsing, WebSocket frames, and the limits on unproven clients.

May import: api.bodies, api.errors, runtime.
"""
