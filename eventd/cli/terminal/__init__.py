"""Input and output of commands: tables, JSON, YAML, progress, lines of standard input.

May import: resources.reading, settings, text.
"""
