"""Outgoing HTTP: the address of a node and connections to it.

May import: tls.
"""
