"""Witnessing in the database: trees and keys of other nodes, cosignatures of this node's checkpoints, and findings.

May import: log.core, log.history, store.engine, store.ids, text.
"""
