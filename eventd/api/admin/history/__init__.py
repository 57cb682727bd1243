"""Histories under /api/v1: shows the trees of groups, and hands out checkpoints, tiles and proofs.

May import: api.framework, groups, log.core, log.history, resources, resources.kinds, store.engine, store.rows.
"""
