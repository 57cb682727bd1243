"""Events: a search over a group, one event on its way through the node and to its peers, emitting, sending again."""

from __future__ import annotations

import json
from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.dry_runs import DryRun, ask_twice
from eventd.console.pages.visit import FilePage, ShownPage, Visit, unfit_page
from eventd.errors import Invalid, NotFound
from eventd.text.plural import counted

_FILTERS: Final = ("type", "subject_prefix", "source", "id", "since", "until", "payload")
_LISTS: Final = ("type", "payload")


async def show_events(visit: Visit) -> ShownPage:
    """Search the events of a group; an id alone leads to its event, in whichever group that is."""
    groups = await visit.group_names()
    name, group = visit.asked("id"), visit.asked("group") or (groups[0] if len(groups) == 1 else "")
    data: dict[str, Any] = {"groups": groups, "group": group, "found": None}
    data |= {"search": None, "name": name, "problem": ""}
    if name and not visit.asked("group"):
        found = (await visit.view.call("events.find", id=name))["groups"]
        if len(found) == 1:
            return ShownPage("Events", "events.html", target=visit.urls.to("events", found[0]["group"], name))
        return ShownPage("Events", "events.html", data | {"group": "", "found": found}, live=False)
    given: dict[str, Any] = {one: text for one in _FILTERS if (text := visit.asked(one))}
    given |= {one: given[one].split(",") for one in _LISTS if one in given}
    if not group:
        return ShownPage("Events", "events.html", data, live=False)
    try:
        data["search"] = await visit.view.call(
            "events.search", group=group, after=visit.asked("after"), limit=visit.limit, **given
        )
    except (Invalid, NotFound) as error:
        return unfit_page("Events", "events.html", data, error)
    return ShownPage("Events", "events.html", data, live=not visit.asked("after"))


async def show_event(visit: Visit) -> ShownPage:
    """Show one event: its envelope, its payload as it is stored, and where it went."""
    group, name = visit.names["group"], visit.names["id"]
    course = await visit.view.call("events.describe", group=group, id=name)
    return ShownPage(name, "event.html", {"group": group, "name": name, **course})


async def download_payload(visit: Visit) -> FilePage:
    """Return the payload of an event as a file."""
    found = await visit.view.call("events.payload", group=visit.names["group"], id=visit.names["id"])
    return FilePage(found.name, found.content)


async def ask_emit(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the members of a new event."""
    if not params.get("group") or not visit.view.sees(params["group"]):
        raise NotFound("choose a group first", hint="the page Events has the groups")
    fields = (
        FormField("type", "Type", "Such as bgp.route.up", required=True),
        FormField("subject", "Subject", "What it is about, such as 10.0.0.0/24"),
        FormField("payload", "Payload", "A JSON object", long=True),
        FormField("ttl", "Time to live", "Such as 15m; empty: the event does not expire"),
        FormField("dedupe_key", "Dedupe key", "A later event of the same key refreshes this one"),
    )
    lines = (f"The event is stored in group {params['group']} and sent to the peers that select it.",)
    return Question("Emit an event", lines, fields=fields)


def _emitted(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `events.emit` for a form. Raises Invalid for a payload that is not a JSON object."""
    names = {"id": "id", "type": "type", "subject": "subject", "ttl": "ttl", "dedupe_key": "dedupeKey"}
    event: dict[str, Any] = {names[name]: form[name] for name in names if form.get(name)}
    try:
        payload = json.loads(form.get("payload") or "{}")
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the payload is not JSON: {error}", hint='write an object such as {"metric": "10"}') from None
    return {"group": form.get("group", ""), "events": [event | {"payload": payload}]}


def show_emitted(visit: Visit, answer: dict[str, Any]) -> ShownPage | None:
    """Redirect to the page of an event that was emitted, if the visitor may see it."""
    (result,) = answer["results"]
    event = result.get("event")
    if event is None or not visit.view.may("events.describe", event["group"]):
        return None
    return ShownPage("Event", "event.html", target=visit.urls.to("events", event["group"], event["id"]))


async def ask_redeliver(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask which events are sent again, and then whether to. `id` is one event, which may have blanks in its id."""
    if not params.get("group") or not params.get("peer"):
        raise NotFound("choose a peer first", hint="the page of a link, or of an event, has this button")
    chosen = _redelivered(params)
    choice = json.dumps([chosen[name] for name in sorted(chosen.keys() - {"group", "peer"})])

    async def plan() -> DryRun:
        found = await visit.view.call("deliveries.redeliver", **chosen, dry_run=True)
        are = "is" if found["events"] == 1 else "are"
        what = f"{counted(found['events'], 'event')}, {counted(found['bytes'], 'byte')},"
        lines = [f"{what} {are} sent to {params['peer']} again."]
        lines += [f"{found[name]:,} others {text}." for name, text in _LEFT_OUT.items() if found.get(name)]
        return DryRun(tuple(lines), found["events"])

    fields = () if params.get("id") else _REDELIVERED
    return await ask_twice(params, f"Send again to {params['peer']}?", fields, "" if choice == "[]" else choice, plan)


_REDELIVERED: Final = (
    FormField("ids", "Events", "Their ids, with blanks between."),
    FormField("since", "Or stored since", "A time, a date, or an age such as 15m."),
    FormField("until", "Until", "The same; empty: until now."),
)
_LEFT_OUT: Final = {
    "expired": "have expired",
    "notMeant": "are not selected for the peer",
    "waiting": "wait for it already",
    "evicted": "are not stored any more",
}


def _redelivered(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the question."""
    given = {name: value for name, value in params.items() if name not in ("id", "seen")}
    return given | ({"ids": [params["id"]]} if params.get("id") else {})


ACTIONS: Final = {
    "events.emit": PageAction(
        "Emit", "The event is stored.", ask_emit, prepare=_emitted, show=show_emitted, keyed="id"
    ),
    "deliveries.redeliver": PageAction(
        "Send again", "The events are sent again.", ask_redeliver, lists=("ids",), prepare=_redelivered, bound="seen"
    ),
}
