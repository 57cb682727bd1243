"""Text forms: durations, sizes, offending values, validation errors, plurals, invisible characters.

May import: no other room.
"""
