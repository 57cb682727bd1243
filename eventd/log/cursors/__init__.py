"""Cursors: the position of each consumer, its state, its selection and its dead letters.

The table `selectors` holds the selections, and a `selector_version` is the version of one.

May import: store.engine, store.schema.
"""
