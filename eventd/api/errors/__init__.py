"""Errors as HTTP answers: codes, statuses and the two JSON forms.

May import: log.topics, plugins.contract, runtime, text, tls.
"""
