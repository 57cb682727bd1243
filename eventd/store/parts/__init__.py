"""Rows of DynamicConfigParts.

May import: store.engine, store.schema.
"""
