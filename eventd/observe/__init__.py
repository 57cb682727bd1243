"""Log lines and metrics.

May import: lake, text.
"""
