"""Plugins: all that are declared, and one with its runs; running one without events, and checking it."""

from __future__ import annotations

import json
from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import Invalid, NotFound

_STATUSES: Final = ("running", "succeeded", "failed", "blocked", "interrupted", "dead letter", "lost")
_RUNS: Final = 20
"""Maximum number of runs on a page: each may have written much to its standard error."""
_STORE, _TRY = "run it, and store what it proposes", "try it: store nothing"
_MOST_ERROR: Final = 1000
"""Maximum number of characters of a run's standard error that the page of a plugin shows."""
_NEWEST: Final = 100
"""Number of runs among which the last one of each plugin is looked for."""
_MOST_TEXT: Final = 64 << 10
"""Maximum number of characters of a proposal that a page shows."""


async def show_plugins(visit: Visit) -> ShownPage:
    """Show the plugins with the last run of each, as far as it is among the newest runs of all."""
    found: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    if visit.view.sees(""):
        found = (await visit.view.call("plugins.list"))["plugins"]
        for run in (await visit.view.call("plugins.runs", limit=_NEWEST))["runs"]:
            last.setdefault(run["plugin"], run)
    text = visit.asked("q").casefold()
    shown = [{"last": last.get(one["name"]), **one} for one in found if text in one["name"].casefold()]
    shown.sort(key=lambda one: (one["last"] is None or one["last"]["status"] in ("succeeded", "running"), one["name"]))
    data = {"plugins": shown[:MOST_ROWS], "matching": len(shown), "all": len(found), "most": MOST_ROWS}
    return ShownPage("Plugins", "plugins.html", data)


async def show_plugin(visit: Visit) -> ShownPage:
    """Show one plugin with a page of its runs, the newest first, and the subscriptions that run it. Raises NotFound."""
    one = await _read(visit, visit.names["plugin"])
    before, status = visit.number("after"), visit.chosen("status", _STATUSES)
    page = {"before": before} if before else {}
    wanted = ["parked" if status == "dead letter" else status] if status else []
    runs = await visit.view.call(
        "plugins.runs", plugin=one["name"], status=wanted, limit=min(visit.limit, _RUNS), **page
    )
    used = []
    if visit.view.may("subscriptions.list"):
        known = (await visit.view.call("subscriptions.list"))["subscriptions"]
        used = [each for each in known if each["plugin"] == one["name"]]
    data = {
        "one": one,
        "runs": [{**run, "stderr": _end(run["stderr"])} for run in runs["runs"]],
        "next": runs["next"],
        "statuses": _STATUSES,
        "used": used[:MOST_ROWS],
        "users": len(used),
    }
    return ShownPage(f"Plugin {one['name']}", "plugin.html", data, live=not before)


def _end(text: str) -> str:
    """Return the end of a standard error, where failures are reported."""
    return text if len(text) <= _MOST_ERROR else f"…{text[-_MOST_ERROR:]}"


async def _read(visit: Visit, name: str) -> dict[str, Any]:
    for one in (await visit.view.call("plugins.list"))["plugins"]:
        if one["name"] == name:
            found: dict[str, Any] = one
            return found
    raise NotFound(f"there is no plugin {name[:80]}", hint="the page Plugins shows all of them")


async def ask_run(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a plugin runs without events."""
    one = await _read(visit, params.get("name", ""))
    lines = (
        "It runs once, without events.",
        "A trial stores nothing, but the plugin really runs: its effects outside the node happen.",
    )
    field = FormField("what", "Then", choices=(_TRY, _STORE))
    return Question(f"Run {one['name']} now?", lines, fields=(field,))


def _run(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    if form.get("what") not in (_TRY, _STORE):
        raise Invalid("choose whether what it proposes is stored")
    return {"name": form.get("name", ""), "dry_run": form["what"] == _TRY}


def show_ran(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Show what a run proposed."""
    proposed = {name: answer["part"]["spec"][name] for name in ("resources", "directives", "actionPlans")}
    text = json.dumps(proposed, indent=2, ensure_ascii=False)
    data = {"one": answer, "text": text[:_MOST_TEXT], "whole": len(text) <= _MOST_TEXT}
    return ShownPage(f"Run of {answer['plugin']}", "plugin_ran.html", data, live=False)


async def ask_check(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a plugin is checked."""
    one = await _read(visit, params.get("name", ""))
    lines = (
        "It runs up to 17 times with sample requests; nothing is stored.",
        "A check that takes longer than 30 s ends here: use routerctl plugin check.",
    )
    field = FormField("type", "Event type", "Of the sample events; empty: one that a subscription passes to it.")
    return Question(f"Check {one['name']}?", lines, fields=(field,))


def show_checked(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Show the verdicts on a plugin."""
    return ShownPage(f"Check of {answer['plugin']}", "plugin_checked.html", {"one": answer}, live=False)


ACTIONS: Final = {
    "plugins.run": PageAction("Run now", "The plugin has run.", ask_run, prepare=_run, show=show_ran),
    "plugins.check": PageAction("Check", "The plugin was checked.", ask_check, show=show_checked),
}
