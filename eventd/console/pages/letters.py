"""Dead letters: those of all owners, by reason, to be sent again or dropped one by one or all that match."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit
from eventd.errors import Conflict, Invalid
from eventd.text.plural import counted

KINDS: Final = ("peer", "subscription", "callback", "router", "queue")
SETTLED: Final = ("peer", "subscription", "callback")
"""The kinds of owners whose dead letters are chosen one by one."""
_FILTERS: Final = ("kind", "owner", "reason", "group")
_OWNERS: Final = ("group", "peer", "subscription", "callback")


async def show_letters(visit: Visit) -> ShownPage:
    """Show the dead letters that fit the filters of the query, newest first, and how many each reason has."""
    given = {name: text for name in (*_FILTERS, "after") if (text := visit.asked(name))}
    found = await visit.view.call("dead_letters.all", limit=visit.limit, **given)
    groups = await visit.group_names()
    filtered = any(visit.asked(name) for name in _FILTERS)
    picked = visit.asked("choose") == "all"
    chosen_of = [kind for kind in SETTLED if kind != "callback" or visit.view.sees("")]
    data = {"kinds": KINDS, "names": groups, "filtered": filtered, "chosen_of": chosen_of, "picked": picked, **found}
    return ShownPage("Dead letters", "letters.html", data, live=not visit.asked("after") and not picked)


async def ask_drop(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before dead letters are dropped."""
    count = len(params.get("ids", ()))
    if "callback" in params:
        owner = f"the callback {params['callback']}"
    else:
        owner = f"{'a peer' if count == 1 else 'peers'} of group {params.get('group', '')}"
    what = "The event is never delivered." if count == 1 else "The events are never delivered."
    lines = (f"This drops {counted(count, 'dead letter')} of {owner}. {what}",)
    return Question("Drop the dead letter?" if count == 1 else f"Drop {count:,} dead letters?", lines, count=count)


def _picked(params: dict[str, Any]) -> int:
    """Return the number of chosen dead letters. Raises Invalid without any."""
    if not params.get("pick"):
        raise Invalid("no dead letter is chosen", hint="go back and tick some")
    return len(params["pick"])


async def ask_retry_chosen(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before the chosen dead letters are sent once more."""
    count = _picked(params)
    lines = (f"Sends {counted(count, 'dead letter')} once more. Those that cannot be sent again stay dead letters.",)
    return Question(f"Retry {counted(count, 'dead letter')}?", lines, count=count)


async def ask_drop_chosen(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before the chosen dead letters are dropped."""
    count = _picked(params)
    what = "it is never delivered" if count == 1 else "they are never delivered"
    lines = (f"Drops {counted(count, 'dead letter')}: {what} and cannot be restored.",)
    return Question(f"Drop {counted(count, 'dead letter')}?", lines, count=count)


def _chosen(form: dict[str, Any]) -> dict[str, Any]:
    return {"ids": form.get("pick", [])}


async def ask_start(visit: Visit, params: dict[str, Any]) -> Question:
    """Plan a job and ask before it starts; the form has the token of the plan, so that the job does what was asked.

    Raises Conflict if nothing matches.
    """
    if "token" not in params:
        wanted: dict[str, Any] = {name: params[name] for name in _OWNERS if name in params}
        if "reason" in params:
            wanted["reasons"] = [params["reason"]]
        plan = await visit.view.call("jobs.plan", action=params.get("action", ""), **wanted)
        if not plan["count"]:
            raise Conflict("no dead letter matches any more", hint="the page Dead letters lists those that are left")
        params |= {"token": plan["token"], "count": str(plan["count"])}
        if not plan["exact"]:
            params["about"] = "yes"
    text = params.get("count", "")
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    owner = next((f"{name} {params[name]}" for name in reversed(_OWNERS) if name in params), "the node")
    reason = f" with the reason {params['reason']}" if "reason" in params else ""
    drops = params.get("action") == "drop"
    what = "dropped: they are never delivered and cannot be restored" if drops else "sent once more"
    lines = (
        f"{'About ' if 'about' in params else ''}{count:,} dead letters of {owner}{reason} are {what}.",
        "A job does it in steps, and can be cancelled between two of them. Later dead letters are not touched.",
    )
    return Question("Drop all that match?" if drops else "Retry all that match?", lines, count=count)


def _started(form: dict[str, Any]) -> dict[str, Any]:
    return {"token": form.get("token", "")}


def show_started(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Lead to the page of a job that was started."""
    return ShownPage("Job", "job.html", target=visit.urls.to("jobs", answer["job"]["number"]))


ACTIONS: Final = {
    "dead_letters.retry_chosen": PageAction(
        "Retry", "The chosen dead letters are sent once more.", ask_retry_chosen, lists=("pick",), prepare=_chosen
    ),
    "dead_letters.drop_chosen": PageAction(
        "Drop",
        "The chosen dead letters are dropped.",
        ask_drop_chosen,
        danger=True,
        lists=("pick",),
        prepare=_chosen,
    ),
    "dead_letters.retry": PageAction("Retry", "The dead letter is sent once more.", lists=("ids",)),
    "dead_letters.drop": PageAction("Drop", "The dead letter is dropped.", ask_drop, danger=True, lists=("ids",)),
    "callback_letters.retry": PageAction("Retry", "The dead letter is sent once more.", lists=("ids",)),
    "callback_letters.drop": PageAction("Drop", "The dead letter is dropped.", ask_drop, danger=True, lists=("ids",)),
    "jobs.start": PageAction(
        "Start the job",
        "The job has started.",
        ask_start,
        danger=True,
        prepare=_started,
        bound="token",
        show=show_started,
    ),
}
