"""Text forms: durations, sizes, offending values, validation errors, plurals, invisible characters, repeated keys.

May import: no other room.
"""
