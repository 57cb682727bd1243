"""Connections to a node: addresses, outgoing HTTP and TLS, and the checks of the local socket at both ends.

May import: tls.
"""
