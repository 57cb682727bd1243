"""How values are written in texts: durations, sizes, offending values, invisible characters.

May import: nothing of the project.
"""
