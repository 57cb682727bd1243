"""Renders pages: templates, formats of values, URLs.

May import: text.
"""
