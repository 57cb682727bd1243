"""Child processes that end with the node, with all that they started.

May import: runtime.
"""
