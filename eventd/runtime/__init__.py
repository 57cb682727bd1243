"""The clock, randomness, thread pools, tasks, back-off and a worker's share: passed to all other packages.

May import: no other room.
"""
