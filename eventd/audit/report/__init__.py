"""The report of an audit: its model, its findings, its objectives, and its summary on a terminal.

May import: resources.kinds, resources.reading, resources.validation, text.
"""
