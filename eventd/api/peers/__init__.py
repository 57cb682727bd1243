"""The listener of a group: the requests of peers over v1 and v2.

May import: api.bodies, api.errors, api.listener, ingress, resources, tls, tracing.
"""
