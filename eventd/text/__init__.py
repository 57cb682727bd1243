"""Text forms of values: durations, sizes, offending values, invisible characters.

May import: nothing of the project.
"""
