"""Connections and transactions on SQLite and Postgres. Storage functions need not know which of the two it is.

May import: runtime, text.
"""
