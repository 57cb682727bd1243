"""Histories under /api/v1: shows the trees of groups, and hands out checkpoints, tiles and proofs.

May import: api.admin.events, api.framework, egress.transport, groups, log.core, log.history, log.witnesses, resources,
    resources.kinds, runtime, store.engine, store.rows, text, witnessing.
"""
