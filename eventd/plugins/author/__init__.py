"""The functions and classes for plugin authors.

May import: nothing of the project.
"""
