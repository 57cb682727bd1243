"""YAML and JSON documents, with the line of every field.

May import: text.
"""
