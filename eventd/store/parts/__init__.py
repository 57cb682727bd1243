"""Rows of DynamicConfigParts.

May import: store.engine, store.ids.
"""
