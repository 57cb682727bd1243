"""Log lines and metrics.

May import: lake, runtime, text, tracing.
"""
