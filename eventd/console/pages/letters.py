"""Dead letters: those of all owners, by reason, to be sent again or dropped one by one or all that match."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit, unfit_page
from eventd.errors import Conflict, Invalid, NotFound
from eventd.text.plural import counted

KINDS: Final = ("peer", "subscription", "callback", "router", "queue")
SETTLED: Final = ("peer", "subscription", "callback")
"""The kinds of owners whose dead letters are chosen one by one."""
_FILTERS: Final = ("kind", "owner", "reason", "group")
_MOST_NAMED: Final = 10
"""Maximum number of dead letters that a question names."""
_OWNERS: Final = ("group", "peer", "subscription", "callback")


async def show_letters(visit: Visit) -> ShownPage:
    """Show the dead letters that fit the filters of the query, newest first, and how many each reason has."""
    given = {name: text for name in (*_FILTERS, "after") if (text := visit.asked(name))}
    groups = await visit.group_names()
    filtered = any(visit.asked(name) for name in _FILTERS)
    picked = visit.asked("choose") == "all"
    chosen_of = [kind for kind in SETTLED if kind != "callback" or visit.view.sees("")]
    data: dict[str, Any] = {
        "kinds": KINDS,
        "names": groups,
        "filtered": filtered,
        "chosen_of": chosen_of,
        "picked": picked,
        "problem": "",
    }
    try:
        data |= await visit.view.call("dead_letters.all", limit=visit.limit, **given)
    except (Invalid, NotFound) as error:
        nothing: dict[str, Any] = {"deadLetters": [], "next": None, "groups": [], "groupsComplete": True}
        return unfit_page("Dead letters", "letters.html", data | nothing, error)
    return ShownPage("Dead letters", "letters.html", data, live=not visit.asked("after") and not picked)


async def ask_drop(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before dead letters are dropped."""
    count = len(params.get("ids", ()))
    if "callback" in params:
        owner = f"the callback {params['callback']}"
    else:
        owner = f"{'a peer' if count == 1 else 'peers'} of group {params.get('group', '')}"
    what = "The event is never delivered." if count == 1 else "The events are never delivered."
    events = await _events_of(visit, params.get("ids", []))
    lines = (f"This drops {_named(params.get('ids', []), events)} of {owner}. {what}", *events)
    title = "Drop the dead letter?" if count == 1 else f"Drop {count:,} dead letters?"
    return Question(title, lines, count=count, stated=("group", "callback", *_few("ids", params.get("ids", []))))


def _named(ids: list[str], events: list[str]) -> str:
    """Return a text for dead letters: how many they are, and the numbers of the first `_MOST_NAMED`.

    Other pages do not show the numbers: they are left out if the sentences about the `events` name all dead letters.
    """
    if len(events) == len(ids):
        return counted(len(ids), "dead letter")
    names = ", ".join(ids[:_MOST_NAMED])
    return f"{counted(len(ids), 'dead letter')} ({names}{', …' if len(ids) > _MOST_NAMED else ''})"


async def _events_of(visit: Visit, ids: list[str]) -> list[str]:
    """Return the first of these dead letters in sentences: event, owner and reason."""
    named = [int(one) for one in ids[:_MOST_NAMED] if one.isascii() and one.isdigit() and len(one) < 19]
    if not named or not visit.view.may("dead_letters.all"):
        return []
    try:
        found = await visit.view.call("dead_letters.all", ids=named)
    except Invalid:  # an older node
        return []
    return [
        f"Event {one['eventId']} of the {one['kind']} {one['owner']} in {one['group'] or one['topic']}:"
        f" {one['reason']}."
        for one in found["deadLetters"]
    ]


def _few(name: str, ids: list[str]) -> tuple[str, ...]:
    """Return the name of a parameter if a question names all dead letters in it."""
    return (name,) if len(ids) <= _MOST_NAMED else ()


def _picked(params: dict[str, Any]) -> list[str]:
    """Return the numbers of the chosen dead letters. Raises Invalid without any."""
    if not params.get("pick"):
        raise Invalid("no dead letter is chosen", hint="go back and tick some")
    found: list[str] = params["pick"]
    return found


async def ask_retry_chosen(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before the chosen dead letters are sent once more."""
    ids = _picked(params)
    events = await _events_of(visit, ids)
    lines = (f"Sends {_named(ids, events)} once more. Those that cannot be sent again stay dead letters.", *events)
    return Question(f"Retry {counted(len(ids), 'dead letter')}?", lines, count=len(ids), stated=_few("pick", ids))


async def ask_drop_chosen(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before the chosen dead letters are dropped."""
    ids = _picked(params)
    what = "it is never delivered" if len(ids) == 1 else "they are never delivered"
    events = await _events_of(visit, ids)
    lines = (f"Drops {_named(ids, events)}: {what} and cannot be restored.", *events)
    return Question(f"Drop {counted(len(ids), 'dead letter')}?", lines, count=len(ids), stated=_few("pick", ids))


def _chosen(form: dict[str, Any]) -> dict[str, Any]:
    return {"ids": form.get("pick", [])}


async def ask_start(visit: Visit, params: dict[str, Any]) -> Question:
    """Plan a job and ask before it starts.

    The form has the token of the plan, so that the job does exactly what was shown. Raises Conflict if nothing
    matches.
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
    about, drops = "about " if "about" in params else "", params.get("action") == "drop"
    what = f"{about}{counted(count, 'dead letter')}"
    end = "It is" if count == 1 else "They are"
    owner, stated = _owner_of(params)
    lines = (
        f"This drops {what} of {owner}. {end} never delivered, and cannot be restored."
        if drops
        else f"This sends {what} of {owner} once more.",
        "A job does it in steps, and can be cancelled between two of them. Later dead letters are not touched.",
    )
    verb = "Drop" if drops else "Retry"
    button = f"{verb} {'it' if count == 1 else 'them'}"
    return Question(f"{verb} {what}?", lines, count=count, button=button, danger=drops, stated=("action", *stated))


def _owner_of(params: dict[str, Any]) -> tuple[str, list[str]]:
    """Return a text that says whose dead letters the parameters of a plan select, and the parameters that this text
    covers."""
    owner = next((name for name in reversed(_OWNERS[1:]) if name in params), "")
    words = f"the {owner} {params[owner]}" if owner else "all owners" if "group" in params else "the node"
    if "group" in params:
        words += f" in group {params['group']}"
    if "reason" in params:
        words += f" with the reason {params['reason']}"
    return words, [name for name in (owner, "group", "reason") if name in params]


def _started(form: dict[str, Any]) -> dict[str, Any]:
    return {"token": form.get("token", "")}


def show_started(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Redirect to the page of a job that was started."""
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
        prepare=_started,
        bound="token",
        show=show_started,
    ),
}
