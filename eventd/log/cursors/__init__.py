"""Cursors: the position of each consumer, its state, its selection and its dead letters.

May import: store.engine, store.schema.
"""
