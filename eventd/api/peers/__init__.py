"""The listener of a group: what peers send over v1 and v2.

May import: api.bodies, api.errors, api.listener, ingress.
"""
