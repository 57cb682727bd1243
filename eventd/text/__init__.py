"""Text forms of values: durations, sizes, offending values, plurals, invisible characters.

May import: nothing of the project.
"""
