"""The one loop of every consumer, and what a sink must do.

May import: log.core, log.cursors, runtime.
"""
