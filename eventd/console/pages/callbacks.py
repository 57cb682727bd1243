"""Callbacks: all of the node, and one with the requests to its endpoint."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.dry_runs import DryRun, ask_twice
from eventd.console.pages.link_charts import read_acceptance, read_callback_charts
from eventd.console.pages.resets import ask_move, prepare_move
from eventd.console.pages.visit import ShownPage, Visit
from eventd.errors import NotFound
from eventd.text.plural import counted

_ALL, _FAILED = "all events of that time", "only its dead letters of that time"
_RANGE: Final = (
    FormField("since", "Since", "Such as 15m, or 2026-03-01T12:00:00Z."),
    FormField("until", "Until", "Empty: up to now. What is still to be sent is sent anyway."),
    FormField("what", "Send again", choices=(_ALL, _FAILED)),
)


async def show_callbacks(visit: Visit) -> ShownPage:
    """Show the callbacks, those that need attention first."""
    listed = [await visit.view.call("callbacks.list", group=group) for group in await visit.scopes_of_groups()]
    found = [one for each in listed for one in each["callbacks"]]
    found.sort(key=lambda one: (one["state"] == "running", one["callback"]))
    return ShownPage("Callbacks", "callbacks.html", {"callbacks": found, "accepted": await read_acceptance(visit)})


async def show_callback(visit: Visit) -> ShownPage:
    """Show one callback and a page of its attempts. Raises NotFound."""
    name = visit.names["callback"]
    one = await visit.view.call("callbacks.describe", callback=name)
    tried = await visit.view.call("callbacks.attempts", callback=name, after=visit.asked("after"), limit=visit.limit)
    data = {"one": one, **tried, **await read_callback_charts(visit, one["callback"])}
    return ShownPage(f"Callback {name}", "callback.html", data, live=not visit.asked("after"))


async def _name(visit: Visit, params: dict[str, Any]) -> str:
    """Return the name of the callback that a question is about. Raises NotFound."""
    if not params.get("callback"):
        raise NotFound("choose a callback first", hint="the page Callbacks shows all of them")
    name: str = (await visit.view.call("callbacks.describe", callback=params["callback"]))["callback"]
    return name


async def ask_pause(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a callback is paused."""
    name = await _name(visit, params)
    lines = ("The node sends it nothing until it is resumed. Nothing is lost while its events are stored.",)
    field = FormField("by", "Reason", "Shown with the callback, such as your name or a ticket.")
    return Question(f"Pause the callback {name}?", lines, fields=(field,))


async def ask_reset(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask at which position a callback is to continue, and show what the move would change."""
    title = f"Move the callback {await _name(visit, params)} to another position?"
    return await ask_move(visit, "callbacks.reset", params, title, "sent again")


async def ask_resend(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask which events are to be sent again, then ask for confirmation.

    `id` is the id of a single event, which may contain blanks.
    """
    title = f"Send events to {await _name(visit, params)} again?"
    ids = _resent(params)["ids"]

    async def plan() -> DryRun:
        found = await visit.view.call("callbacks.resend", **_resent(params), dry_run=True)
        return DryRun((f"Sends {counted(found['events'], 'event')} again: {', '.join(ids[:10])}",), found["events"])

    fields = () if ids else (FormField("ids", "Events", "Their ids, with blanks between.", required=True),)
    return await ask_twice(params, title, fields, "\n".join(ids), plan)


def _resent(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    ids = [params["id"]] if params.get("id") else params.get("ids", [])
    return {"callback": params.get("callback", ""), "ids": ids}


async def ask_replay(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the time whose events are to be sent again, then ask for confirmation."""
    title = f"Replay events to {await _name(visit, params)}?"

    async def plan() -> DryRun:
        found = await visit.view.call("callbacks.replay", **_replayed(params), dry_run=True)
        return DryRun((f"Sends {counted(found['events'], 'event')} again.",), found["events"])

    choice = f"{params.get('since', '')} {params.get('until', '')} {params['what']}" if "what" in params else ""
    return await ask_twice(params, title, _RANGE, choice, plan)


def _replayed(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    given = {name: value for name, value in params.items() if name not in ("seen", "what")}
    return given | {"failed": params.get("what") == _FAILED}


def show_tested(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Show the answer of an endpoint to a test message."""
    return ShownPage(f"Test of {answer['callback']}", "callback_tested.html", {"one": answer}, live=False)


ACTIONS: Final = {
    "callbacks.pause": PageAction("Pause", "The callback is paused.", ask_pause, danger=True),
    "callbacks.resume": PageAction("Resume", "The callback resumes at once."),
    "callbacks.test": PageAction("Send a test", "The test message was sent.", show=show_tested),
    "callbacks.resend": PageAction(
        "Send again", "The events are sent again.", ask_resend, lists=("ids",), prepare=_resent, bound="seen"
    ),
    "callbacks.replay": PageAction("Replay", "The events are sent again.", ask_replay, prepare=_replayed, bound="seen"),
    "callbacks.reset": PageAction(
        "Reset", "The callback was moved.", ask_reset, danger=True, prepare=prepare_move, bound="seen"
    ),
}
