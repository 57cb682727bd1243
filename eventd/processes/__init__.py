"""Child processes that end with the node, together with all their own children.

May import: runtime.
"""
