"""Callbacks: all of the node, and one with the requests to its endpoint."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit


async def show_callbacks(visit: Visit) -> ShownPage:
    """Show the callbacks, those that need attention first."""
    found = (await visit.view.call("callbacks.list"))["callbacks"]
    found.sort(key=lambda one: (one["state"] == "running", one["callback"]))
    return ShownPage("Callbacks", "callbacks.html", {"callbacks": found})


async def show_callback(visit: Visit) -> ShownPage:
    """Show one callback and a page of its attempts. Raises NotFound."""
    name = visit.names["callback"]
    one = await visit.view.call("callbacks.describe", callback=name)
    tried = await visit.view.call("callbacks.attempts", callback=name, after=visit.asked("after"), limit=visit.limit)
    return ShownPage(f"Callback {name}", "callback.html", {"one": one, **tried}, live=not visit.asked("after"))


async def ask_pause(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a callback is paused."""
    one = await visit.view.call("callbacks.describe", callback=params.get("callback", ""))
    lines = ("The node sends it nothing until it is resumed. Nothing is lost while its events are stored.",)
    field = FormField("by", "Reason", "Shown with the callback, such as your name or a ticket.")
    return Question(f"Pause the callback {one['callback']}?", lines, fields=(field,))


ACTIONS: Final = {
    "callbacks.pause": PageAction("Pause", "The callback is paused.", ask_pause, danger=True),
    "callbacks.resume": PageAction("Resume", "The callback resumes at once."),
}
