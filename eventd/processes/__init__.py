"""Child processes: starts them, and kills them with all their descendants, at the latest when the node ends.

May import: runtime.
"""
