"""The classes for plugin authors, the writer of a run's proposals, and the skeleton of a new plugin.

May import: no other room.
"""
