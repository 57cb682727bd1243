"""Checkpoints between nodes: offers those of this node to its peers, cosigns theirs, and compares what others hold.

May import: egress, egress.loop, egress.peers, log.core, log.cursors, log.history, log.witnesses, net, resources,
    runtime, store.engine.
"""
