"""Rows of DynamicConfigParts.

May import: store.engine.
"""
