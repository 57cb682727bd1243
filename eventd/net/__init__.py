"""Connections: addresses and which are allowed, outgoing HTTP and TLS, and the checks of the local socket.

May import: runtime, text, tls.
"""
