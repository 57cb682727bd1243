"""Connections: addresses and the rules for them, outgoing HTTP and TLS, and the checks of the local socket.

May import: runtime, text, tls.
"""
