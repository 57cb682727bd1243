"""Keeps open pages up to date: renders a view once for all its viewers, and streams the changes.

May import: log.topics, runtime.
"""
