"""What the author of a plugin works with.

May import: nothing of the project.
"""
