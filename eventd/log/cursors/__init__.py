"""Cursors: how far each consumer is, its state, its selection and its dead letters.

May import: store.engine, store.schema.
"""
