"""Routers: the graph of all with the predictions of its check, and one with its dead letters.

Creates, changes and deletes them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

from eventd.console.drawing.router_picture import STATES, draw_routers, state_of
from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.view.node_view import V0Request
from eventd.errors import EventdError, Invalid

SHOW: Final = V0Request("GET", ("routers", "{router}"))
_SWITCHES: Final = ("fan_in", "allow_cycle", "preserve_node", "preserve_tag")
_OFF, _ON = ("no", "yes"), ("yes", "no")
_REFUSED: Final = ("cycle", "fan-in", "re-pointed")
"""Problems with which a node refuses a router."""
_MOST_PREDICTED: Final = 100
_MOST_LINES: Final = 20
"""Maximum number of problems that a question names."""


async def show_routers(visit: Visit) -> ShownPage:
    """Show the graph, the routers whose names contain `q` of the query, and what the check of the graph predicts."""
    text = visit.asked("q")
    found = await visit.view.call("topology.show", **({"contains": text} if text else {}))
    shown = [{"word": state_of(one), **one} for one in found["routers"]]
    odd = frozenset(topic for one in found["problems"] for topic in one["at"].split(" => "))
    predicted = [row for row in found["predicted"] if row["copies"] > 1 or row["duplicates"]]
    data = {
        "picture": draw_routers(shown, odd) if shown else None,
        "states": STATES,
        "routers": sorted(shown, key=lambda one: (STATES.index(one["word"]) > 0, one["router"])),
        "all": len(shown) + found["leftOut"],
        "problems": found["problems"],
        "advice": found["advice"],
        "predicted": predicted[:_MOST_PREDICTED],
        "complete": found["complete"],
        "leftOut": found["leftOut"],
    }
    return ShownPage("Routers", "routers.html", data)


async def show_router(visit: Visit) -> ShownPage:
    """Show one router with its options and its newest dead letters. Raises NotFound."""
    one = await visit.view.ask("GET", "routers", visit.names["router"])
    return ShownPage(one["router"], "router.html", {"one": one, "options": _options(one)})


def _options(one: dict[str, Any]) -> dict[str, str]:
    """Return the options of a router as the values of a form."""
    return {name: "yes" if one[name] else "no" for name in _SWITCHES} | {
        "filter": " ".join(one["filter"] or ()),
        "guarantee": one["guarantee"],
        "map": json.dumps(one["map"], ensure_ascii=False) if "map" in one else "",
    }


def _fields(*, fixed: bool) -> tuple[FormField, ...]:
    """Return the form fields of a router; `fixed`: without its name and its two topics, which cannot be changed."""
    ends = (
        FormField("source", "Source", "The topic that is copied", required=True),
        FormField("dest", "Destination", "The topic that gets the copies", required=True),
        FormField("router", "Name", "Empty: source->destination"),
    )
    return (
        *(() if fixed else ends),
        FormField("filter", "Filter", "A tag such as eu:*, or three words such as: tag Glob eu:*; empty: all records"),
        FormField(
            "fan_in", "Keep identities", "Copies keep the id of their record: cycles and joins copy it once", _OFF
        ),
        FormField("guarantee", "Guarantee", "exactly_once names the original in each copy", _GUARANTEES),
        FormField("allow_cycle", "Allow a cycle", "Records are then copied around it up to 8 times", _OFF),
        FormField("preserve_node", "Keep the node", "", _ON),
        FormField("preserve_tag", "Keep the tag", "", _ON),
        FormField("map", "Map", "Of routers into a group, as JSON: how records become events"),
    )


_GUARANTEES: Final = ("at_least_once", "exactly_once")


async def ask_create(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for a new router, then whether to create it with what the check of the graph predicts.

    `seen` of the parameters is a digest of the prediction that the visitor was shown: if it differs now, the new one
    is shown first.
    """
    fields, seen = _fields(fixed=False), params.pop("seen", "")
    source, dest = params.get("source", ""), params.get("dest", "")
    if not source or not dest:
        lines = ("It copies what is written from now on. The next page shows what the check of the graph predicts.",)
        return Question("Create a router", lines, fields=fields, ready=False)
    name = params.setdefault("router", f"{source}->{dest}")
    return await _checked(visit, params, f"Create the router {name}?", seen, fields)


async def ask_change(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the options of a router; the form begins with the present options and replaces all of them.

    `seen` of the parameters covers these, too: if the router was changed in the meantime, the change is shown first.
    """
    name, seen = params.get("router", ""), params.pop("seen", "")
    one = await visit.view.ask("GET", "routers", name)
    present, fields = _options(one), _fields(fixed=True)
    if not seen:
        params |= present
    params |= {"source": one["source"], "dest": one["dest"]}
    was, _, prediction = seen.partition("-")
    now = hashlib.sha256(json.dumps(present).encode()).hexdigest()
    asked = await _checked(visit, params, f"Change the router {name}", prediction, fields)
    if "seen" in params:
        params["seen"] = f"{now}-{params['seen']}"
    if not seen or was == now:
        return asked
    other = [
        f"{field.label}: {present[field.name] or 'empty'}"
        for field in fields
        if present[field.name] != params.get(field.name, "")
    ]
    changed = ["The router was changed since this form was opened."]
    changed += [f"Now it has {'; '.join(other)}."] if other else []
    return replace(asked, lines=(*changed, *asked.lines), ready=False)


async def _checked(
    visit: Visit, params: dict[str, Any], title: str, seen: str, fields: tuple[FormField, ...]
) -> Question:
    """Return a question that shows the result of the graph's check of a router."""
    lines, prediction, refused = ["Records that are stored already are not copied."], "unchecked", False
    if visit.view.may("topology.show"):
        flags = [name for name in ("fan_in", "allow_cycle") if params.get(name) == "yes"]
        word = ",".join([f"{params['router']}={params['source']}->{params['dest']}", *flags])
        try:
            before = {_line(one) for one in (await visit.view.call("topology.show"))["problems"]}
            found = await visit.view.call("topology.show", add=[word])
        except EventdError as error:
            return Question(title, (), fields=fields, ready=False, problem=f"It cannot be checked: {error}")
        new = [one for one in found["problems"] if _line(one) not in before]
        refused = any(one["problem"] in _REFUSED for one in new)
        prediction = hashlib.sha256(json.dumps([word, *map(_line, new)]).encode()).hexdigest()
        lines += [f"{_line(one)}." for one in new[:_MOST_LINES]] or ["The check of the graph finds no new problem."]
        lines += [f"There are {len(new) - _MOST_LINES:,} more problems."] if len(new) > _MOST_LINES else []
        lines += [f"To avoid this, {found['advice']}."] if new else []
    params["seen"] = prediction
    return Question(title, tuple(lines), fields=fields, ready=seen == prediction and not refused)


def _line(problem: dict[str, str]) -> str:
    return f"{problem['at']}: {problem['problem']}, {problem['meaning']}"


def _declared(form: dict[str, Any]) -> dict[str, Any]:
    """Return the name of a router and the members of the API for a form. Raises Invalid."""
    body: dict[str, Any] = {name: form[name] for name in ("router", "source", "dest", "guarantee") if form.get(name)}
    body.setdefault("router", f"{body.get('source', '')}->{body.get('dest', '')}")
    body |= {name: form[name] == "yes" for name in _SWITCHES if form.get(name)}
    if words := str(form.get("filter", "")).split(maxsplit=2):
        body["filter"] = words if len(words) == 3 else words[0]
    if form.get("map"):
        try:
            body["map"] = json.loads(form["map"])
        except (ValueError, RecursionError) as error:
            raise Invalid(f"the map is not JSON: {error}", hint='write an object such as {"type": "${tag}"}') from None
    return body


async def ask_delete(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a router is deleted."""
    one = await visit.view.ask("GET", "routers", params.get("router", ""))
    lines = [f"Nothing more is copied from {one['source']} to {one['dest']}. The copies stay."]
    if one["lag"]:
        lines.append(f"{one['lag']:,} seqs of {one['source']} are not copied yet, and will not be.")
    return Question(f"Delete the router {one['router']}?", tuple(lines))


def _deleted(form: dict[str, Any]) -> dict[str, Any]:
    return {"router": form.get("router", "")}


_ROUTER: Final = ("routers", "{router}")
ACTIONS: Final = {
    "routers.create": PageAction(
        "Create a router",
        "The router is created.",
        ask_create,
        prepare=_declared,
        bound="seen",
        request=V0Request("PUT", _ROUTER),
    ),
    "routers.change": PageAction(
        "Change",
        "The router is changed.",
        ask_change,
        prepare=_declared,
        bound="seen",
        request=V0Request("PUT", _ROUTER),
    ),
    "routers.delete": PageAction(
        "Delete",
        "The router is deleted.",
        ask_delete,
        danger=True,
        prepare=_deleted,
        request=V0Request("DELETE", _ROUTER),
    ),
}
