"""Reads request bodies within limits of size, time and memory before they are decoded.

May import: api.errors, log.topics.
"""
