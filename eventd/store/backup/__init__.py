"""Copies of a SQLite database, and of any database into an empty one.

May import: store.engine, store.schema.
"""
