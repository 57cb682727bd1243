"""The one loop of every consumer, and the interface of its sinks.

May import: log.core, log.cursors, runtime.
"""
