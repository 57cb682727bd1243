"""The functions and classes for plugin authors.

May import: no other room.
"""
