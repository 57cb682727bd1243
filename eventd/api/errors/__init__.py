"""Errors as HTTP answers: codes, statuses and the two JSON shapes.

May import: log.topics, plugins.contract, runtime.
"""
