"""The delivery ledger: what each peer has, what is on its way, and repairs.

May import: log.core, log.cursors, store.engine, store.rows, store.schema.
"""
