"""The errors that a client raises: those of a node's answers, and those of connections.

May import: tls.
"""
