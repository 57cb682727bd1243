"""One console for many nodes, on the machine of an operator: the pages of each over its API, and pages of all together.

May import: api.errors, api.keys, client, client.refusals, console.drawing, console.live, console.pages,
    console.rendering, console.serving, console.view, net, runtime, text.
"""
