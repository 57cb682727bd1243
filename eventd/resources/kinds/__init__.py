"""The kinds of resources, one file each, and their JSON Schemas.

May import: resources.reading, streams, text, tls.
"""
