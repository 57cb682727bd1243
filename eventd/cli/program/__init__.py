"""How a command line is read and how a command exits.

May import: cli.terminal, settings, text.
"""
