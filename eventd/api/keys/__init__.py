"""API keys: their permissions, where they come from, and which are valid.

May import: log.topics, runtime, settings, store.rows, text, tls.
"""
