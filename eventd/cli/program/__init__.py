"""Parsing the command line, and exiting.

May import: cli.terminal, runtime, settings, text.
"""
