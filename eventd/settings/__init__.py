"""Settings: flags before environment before file before defaults.

May import: lake, text.
"""
