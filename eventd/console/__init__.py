"""The console: web pages for operators, under /console/ of the API's listener.

May import: api.framework, api.topics, console.serving, settings.
"""
