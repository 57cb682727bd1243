"""The protocol of streams, for node and client: frames, binary layouts, JSON messages, payloads, permissions, tokens.

May import: text.
"""
