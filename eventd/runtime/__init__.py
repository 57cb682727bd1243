"""The clock, randomness, tasks, back-off and a worker's share: passed to every other room.

May import: nothing of the project.
"""
