"""Subscriptions: all of the node, and one with its runs and backfills."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.resets import ask_move, prepare_move
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import NotFound

_RUN_STATUSES: Final = ("failed", "pending", "succeeded")
_RUNS: Final = 20
"""Maximum number of runs of a page."""
_EVENTS: Final = 4
"""Maximum number of events of a run that the page lists."""


async def show_subscriptions(visit: Visit) -> ShownPage:
    """Show the subscriptions of all groups, or of `group` in the query, and of one `state`."""
    groups = await visit.group_names()
    chosen = [visit.asked("group")] if visit.asked("group") else groups
    found, unread = await visit.ask_groups("subscriptions.list", chosen)
    known = [one for each in found for one in each["subscriptions"]]
    state, text = visit.asked("state"), visit.asked("q").casefold()
    shown = [
        one
        for one in known
        if state in ("", one["state"]) and text in f"{one['group']} {one['subscription']} {one['plugin']}".casefold()
    ]
    data = {
        "groups": groups,
        "unread": unread,
        "states": sorted({one["state"] for one in known}),
        "subscriptions": sorted(shown, key=_urgency),
        "all": len(known),
    }
    return ShownPage("Subscriptions", "subscriptions.html", data)


def _urgency(one: dict[str, Any]) -> tuple[int, str, str]:
    """Return the sort key of a subscription: those that need attention first."""
    order = ("blocked", "failed", "backing-off", "paused", "running")
    rank = order.index(one["state"]) if one["state"] in order else len(order)
    return rank, one["group"], one["subscription"]


async def show_subscription(visit: Visit) -> ShownPage:
    """Show one subscription with a page of its runs, the newest first. Raises NotFound."""
    group, name, status = visit.names["group"], visit.names["name"], visit.chosen("status", _RUN_STATUSES)
    found = await visit.view.call("subscriptions.list", group=group, subscription=name)
    before = visit.number("after")
    runs = None
    if visit.view.may("subscriptions.runs", group):
        page = {"before": before} if before else {}
        runs = await visit.view.call(
            "subscriptions.runs", group=group, subscription=name, status=status, limit=min(visit.limit, _RUNS), **page
        )
    outputs = await _read_outputs(visit, found["subscriptions"][0]["plugin"], runs["runs"] if runs else [])
    data = {
        "outputs": outputs,
        "group": group,
        "name": name,
        "one": found["subscriptions"][0],
        "runs": runs,
        "rows": _first_events(runs["runs"]) if runs else [],
        "statuses": _RUN_STATUSES,
        "later": bool(before),
    }
    return ShownPage(name, "subscription.html", data, live=not before)


def _first_events(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first events of each run; `more` is the number of others at the last row of a run."""
    rows: list[dict[str, Any]] = []
    counts: dict[Any, int] = {}
    for run in runs:
        counts[run["id"]] = count = counts.get(run["id"], 0) + 1
        if count <= _EVENTS:
            rows.append({**run, "more": 0})
    last = {row["id"]: row for row in rows}
    for number, row in last.items():
        row["more"] = max(0, counts[number] - _EVENTS)
    return rows


async def _read_outputs(visit: Visit, plugin: str, runs: list[dict[str, Any]]) -> dict[int, str]:
    """Return what these runs wrote to stderr, by the id of the run.

    Empty for a key that is limited to some groups, because a plugin may run for others, too. The output of a run is
    also left out if the run is beyond one page of the plugin's runs, which may include runs for other subscriptions.
    """
    if not runs or not visit.view.sees("") or not visit.view.may("plugins.runs"):
        return {}
    newest = max(run["id"] for run in runs)
    found = await visit.view.call("plugins.runs", plugin=plugin, before=newest + 1, limit=MOST_ROWS)
    return {run["id"]: run["stderr"] for run in found["runs"] if run["stderr"]}


async def _read(visit: Visit, params: dict[str, Any]) -> dict[str, Any]:
    group, name = params.get("group", ""), params.get("subscription", "")
    if not name:
        raise NotFound("choose a subscription first", hint="the page Subscriptions shows all of them")
    found = await visit.view.call("subscriptions.list", group=group, subscription=name)
    one: dict[str, Any] = found["subscriptions"][0]
    return one


async def ask_pause(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a subscription is paused."""
    one = await _read(visit, params)
    lines = (
        f"The plugin {one['plugin']} is not run for {one['subscription']} until the subscription is resumed.",
        f"Now {one['waitingEvents']:,} events wait for it. Nothing is lost: it continues where it stopped.",
    )
    reason = FormField("by", "Reason", "Shown with the subscription, such as your name or a ticket.")
    return Question(f"Pause {one['subscription']}?", lines, fields=(reason,))


async def ask_retry(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before dead letters are retried."""
    one = await _read(visit, params)
    lines = (
        f"The plugin {one['plugin']} runs again for its {one['deadLetters']:,} dead letters.",
        "Those that cannot be retried stay dead letters. A subscription that is backing off or blocked tries at once.",
    )
    return Question(f"Retry {one['subscription']}?", lines, count=one["deadLetters"])


async def ask_reset(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask at which position a subscription is to continue, and show what the move would change."""
    one = await _read(visit, params)
    title = f"Move {one['subscription']} to another position?"
    return await ask_move(visit, "subscriptions.reset", params, title, "run again")


ACTIONS: Final = {
    "subscriptions.pause": PageAction("Pause", "The subscription is paused.", ask_pause, danger=True),
    "subscriptions.resume": PageAction("Resume", "The subscription resumes at once."),
    "subscriptions.retry": PageAction("Retry", "The dead letters that can be retried run again.", ask_retry),
    "subscriptions.reset": PageAction(
        "Reset", "The subscription was moved.", ask_reset, danger=True, prepare=prepare_move, bound="seen"
    ),
}
