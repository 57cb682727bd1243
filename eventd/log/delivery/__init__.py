"""The delivery ledger: what each peer has received, what is pending, and repairs.

May import: log.core, log.cursors, store.engine, store.ids, store.rows.
"""
