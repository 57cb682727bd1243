"""The pages of the console, one file for each part: what they read, and what their templates show.

May import: api.keys, console.drawing, console.rendering, console.view, resources.reading, text.
"""
