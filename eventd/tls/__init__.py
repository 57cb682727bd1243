"""TLS: certificates and their files, contexts of listeners and of connections, and why a handshake failed.

May import: runtime, text.
"""
