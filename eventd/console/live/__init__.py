"""Keeps open pages up to date: renders a view once for all that look at it, and streams what changed.

May import: log.topics, runtime.
"""
