"""Copies of a SQLite database.

May import: store.engine, store.schema.
"""
