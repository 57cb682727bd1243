"""Rows of tables other than the log: declared resources, links, runs, keys, leases.

May import: store.engine, store.ids.
"""
