"""Connections and transactions on SQLite and Postgres. Only `database.py` knows which of the two it is.

May import: runtime.
"""
