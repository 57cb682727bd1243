"""Rows beside the log: declared resources, links, runs, keys, leases.

May import: store.engine, store.schema.
"""
