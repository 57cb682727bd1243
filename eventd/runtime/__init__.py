"""What is handed to everything else: the clock, tasks, back-off, the share of a worker.

May import: nothing of the project.
"""
