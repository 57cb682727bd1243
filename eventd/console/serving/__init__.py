"""Serves the console: sign-in, sessions, pages, actions, static files.

May import: api, api.errors, api.framework, api.keys, api.topics, console.live, console.pages, console.rendering,
    console.view, log.core, log.topics, net, runtime, settings, store.engine, store.rows, text, tls.
"""
