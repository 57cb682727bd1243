"""Text forms: durations, sizes, offending values, validation errors, plurals, invisible characters.

May import: nothing of the project.
"""
