"""Whether a resource is valid, by itself and beside the others.

May import: resources.kinds, resources.reading, store.rows, text.
"""
