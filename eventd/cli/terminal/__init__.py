"""What a command reads and prints: tables, JSON, YAML, progress, lines of the standard input.

May import: resources.reading, text.
"""
