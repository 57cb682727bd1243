"""Routers in the database: their declaration, their source pages, and the commit of a pass.

May import: log.core, log.cursors, log.topics, store.engine, store.schema.
"""
