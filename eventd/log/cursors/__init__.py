"""Cursors: the position of each consumer, its state, its selection and its dead letters.

The table `selectors` holds the selections of links and subscriptions, each with its `selector_version`.

May import: store.engine, store.rows.
"""
