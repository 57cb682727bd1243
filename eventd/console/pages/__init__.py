"""The pages of the console, one file for each part: they read data, and prepare the values that their templates show.

May import: api.keys, console.drawing, console.rendering, console.view, resources.reading, text.
"""
