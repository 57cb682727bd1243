"""Request bodies, read within bounds of size, time and memory before they are decoded.

May import: api.errors, log.topics.
"""
