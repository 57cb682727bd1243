"""Every table, declared once, and migrations.

May import: store.engine, text.
"""
