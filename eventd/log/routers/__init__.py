"""Routers in the database: their declaration, the pages of their sources, and the commit of their copies.

May import: log.core, log.cursors, log.topics, store.engine, store.ids, text.
"""
