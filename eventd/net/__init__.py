"""Outgoing HTTP: the address of a node and connections to it.

May import: nothing of the project.
"""
