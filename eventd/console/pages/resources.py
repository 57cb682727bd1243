"""Resources: what is declared, one resource with its state, applying and deleting."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.resources.reading.documents import load_text
from eventd.resources.reading.yaml_text import write_yaml
from eventd.text.plural import counted

_SOURCE: Final = "form"
"""The name that messages use for the text of the form, in place of a file's name."""
_ADOPT: Final = "yes"
_FIELDS: Final = (
    FormField("text", "Resources", "YAML or JSON; several are separated by ---", long=True, required=True),
    FormField(
        "adopt",
        "Adopt",
        "Whether Topic and TopicRouter resources take over topics and routers that were made through the API.",
        ("no", _ADOPT),
    ),
)


_TEXT: Final = (FormField("text", "Resource", "YAML or JSON", long=True, required=True),)
"""The fields of the form that changes one resource."""
_SHOW: Final = "Show what would change"


async def show_resources(visit: Visit) -> ShownPage:
    """Show the applied resources by kind, or those of one `kind` of the query."""
    found = (await visit.view.call("resources.list"))["resources"]
    kind, text = visit.asked("kind"), visit.asked("q").casefold()
    shown = [one for one in found if kind in ("", one["kind"]) and text in one["metadata"]["name"].casefold()]
    versions: dict[str, set[str]] = {}
    for one in found:
        versions.setdefault(one["kind"], set()).add(one["apiVersion"])
    data = {
        "kinds": sorted(versions),
        "resources": [{"word": _word(one, versions), **one} for one in shown[:MOST_ROWS]],
        "matching": len(shown),
        "all": len(found),
    }
    return ShownPage("Resources", "resources.html", data)


def _word(one: dict[str, Any], versions: dict[str, set[str]]) -> str:
    """Return the kind of a resource for its URL; if the kind alone is ambiguous, with version and API group.

    `versions`: the API versions of each kind.
    """
    kind: str = one["kind"]
    if len(versions[kind]) == 1:
        return kind
    group, _, version = one["apiVersion"].rpartition("/")
    return f"{kind}.{version}.{group}"


async def show_resource(visit: Visit) -> ShownPage:
    """Show one resource with its defaults and its state. Raises NotFound."""
    kind, name = visit.names["kind"], visit.names["name"]
    found = await visit.view.call("resources.describe", kind=kind, name=name)
    links = found.get("status", {}).pop("links", None)  # a group may have hundreds: they have a page of their own
    data = {
        "has_links": links is not None,
        "kind": kind,
        "name": name,
        "problem": found["problem"],
        "updated": found["updatedAt"],
        "generation": found["resource"]["metadata"]["generation"],
        "texts": {
            title: json.dumps(found[member], indent=2, ensure_ascii=False)
            for title, member in (("Declared", "resource"), ("With defaults", "effective"), ("State", "status"))
            if member in found
        },
    }
    return ShownPage(name, "resource.html", data)


_PLANNED: Final = {
    "created": "will be created",
    "configured": "will be changed",
    "deleted": "will be deleted",
    "unchanged": "stays as it is",
}
"""What will happen to a resource, by the word that the plan uses for it."""


def _changed(changes: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the planned changes in sentences; also what is deleted with them."""
    lines = []
    for one in changes[:MOST_ROWS]:
        lost = next((f", with its {one[what]:,} {what}" for what in ("events", "records") if what in one), "")
        adopted = ", and will take over what was made through the API" if one.get("adopted") else ""
        limits = ", ".join(one.get("lowers", ()))
        lowered = f"; lower limits ({limits}) will delete older records or events" if limits else ""
        sent = "; its filter lets in more: stored events that it has left out will be sent, too"
        widened = sent if one.get("widens") else ""
        if left := one.get("narrows"):
            widened += (
                f"; its filter is narrower: only {' and '.join(map(str, left))} are sent from now on; other events"
            )
            widened += " in the backlog are not sent"
            types = ", ".join(map(str, one.get("stops", ())))
            widened += f"; of the newest stored events, those of the types {types} are left out" if types else ""
        planned = _PLANNED.get(one["action"], one["action"])
        lines.append(f"{one['kind']} {one['name']} {planned}{lost}{adopted}{lowered}{widened}.")
    if len(changes) > MOST_ROWS:
        lines.append(f"And {len(changes) - MOST_ROWS:,} more.")
    return tuple(lines)


async def ask_apply(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for resources, then ask for confirmation of the changes that they cause.

    `seen` of the parameters is a digest of the changes that the visitor was shown: if they differ now, they are shown
    first.
    """
    if params.get("kind") and params.get("name"):
        return await _ask_change(visit, params)
    text, seen = params.get("text", ""), params.pop("seen", "")
    if not text:
        lines = ("The next page shows what would change. Resources that the text does not name stay.",)
        return Question("Apply resources", lines, fields=_FIELDS, ready=False, button=_SHOW)
    try:
        changes = await _planned_changes(visit, params)
    except EventdError as error:
        return Question("Apply resources", (), fields=_FIELDS, ready=False, button=_SHOW, problem=_refused(error))
    ready = _note_shown(params, changes, seen)
    return Question("Apply these changes?", _changed(changes), fields=_FIELDS, ready=ready, diff=_diff(changes))


async def _ask_change(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for a new version of one resource, then ask for confirmation of its changes.

    `made_from` of the parameters is the version from which the visitor's text was made; it stays until a difference was
    shown, so that a correction does not lose the conflict. If another version has been applied since, the question says
    so, and shows what the text would change in that version.
    """
    kind, name, seen = params["kind"], params["name"], params.pop("seen", "")
    text, made_from = params.get("text", ""), params.pop("made_from", "")
    try:
        row = await visit.view.call("resources.get", kind=kind, name=name)
    except NotFound as error:
        if not text:
            raise
        lines: tuple[str, ...] = ("It was deleted meanwhile; Apply resources can create it again.",)
        problem = _refused(error)
        return Question(f"Change {name}", lines, fields=_TEXT, ready=False, button=_SHOW, problem=problem)
    title, stored = f"Change {row['kind']} {name}", _version(row)
    params["made_from"] = stored
    if not text or not made_from:
        params["text"] = text or write_yaml(row)
        lines = ("The next page shows what would change. Nothing is applied before you confirm it.",)
        return Question(title, lines, fields=_TEXT, ready=False, button=_SHOW)
    lines = ()
    if made_from != stored:
        lines = (
            f"Conflict: {row['kind']} {name} has changed meanwhile. Your text was made from generation"
            f" {made_from.rpartition(' ')[2]}, and {stored.rpartition(' ')[2]} is stored now. What follows is the"
            " difference to the stored version: it may undo what others have changed.",
        )
    try:
        await _require_one(row, text)
        changes = await _planned_changes(visit, params)
        _require_only(row, changes)
    except EventdError as error:
        params["made_from"] = made_from
        return Question(title, lines, fields=_TEXT, ready=False, button=_SHOW, problem=_refused(error))
    if all(one["action"] == "unchanged" for one in changes):
        lines = (*lines, "The text is what is stored: there is nothing to apply.")
        return Question(title, lines, fields=_TEXT, ready=False, button=_SHOW)
    ready = _note_shown(params, [*changes, {"of": stored}], seen)
    return Question("Apply this change?", (*lines, *_changed(changes)), fields=_TEXT, ready=ready, diff=_diff(changes))


def _version(row: dict[str, Any]) -> str:
    """Return a version of a resource as a text: its API version, kind and generation."""
    return f"{row['apiVersion']} {row['kind']} {row['metadata']['generation']}"


async def _require_one(row: dict[str, Any], text: str) -> None:
    """Raise Invalid if a text holds more than one resource, without planning their changes, which may take seconds."""
    if len((await asyncio.to_thread(load_text, _SOURCE, text)).drafts) > 1:
        raise _not_only(row)


def _not_only(row: dict[str, Any]) -> Invalid:
    return Invalid(
        f"the text must hold {row['kind']}/{row['metadata']['name']} of {row['apiVersion']} and nothing else"
    )


def _require_only(row: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    """Raise Invalid unless the changes are those of this resource alone."""
    own = (row["apiVersion"], row["kind"], row["metadata"]["name"])
    if [(one["apiVersion"], one["kind"], one["name"]) for one in changes] != [own]:
        raise _not_only(row)


async def _planned_changes(visit: Visit, params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes that applying the form would make. Raises the errors of applying it."""
    changes: list[dict[str, Any]] = (await visit.view.call("resources.diff", **_written(params)))["changes"]
    return changes


def _refused(error: EventdError) -> str:
    return f"Nothing was applied: {error}"


def _note_shown(params: dict[str, Any], changes: list[dict[str, Any]], seen: str) -> bool:
    """Put a digest of the shown changes into the parameters, and return whether the visitor has seen exactly these
    changes."""
    shown = [params.get("text", "").split(), params.get("adopt") == _ADOPT, changes]
    params["seen"] = hashlib.sha256(json.dumps(shown).encode()).hexdigest()
    return bool(seen == params["seen"])


def _diff(changes: list[dict[str, Any]]) -> str:
    return "\n".join(one["diff"] for one in changes if one.get("diff"))


def _written(params: dict[str, Any]) -> dict[str, Any]:
    """Return the resources in the fields of the form, and the options with which they are applied."""
    sources = [{"name": _SOURCE, "text": params.get("text", "")}]
    return {"sources": sources, "adopt": params.get("adopt") == _ADOPT}


def _applied(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the form."""
    made_from = params.get("made_from", "").split(" ")
    if made_from == [""]:
        return _written(params)
    if len(made_from) != 3 or not made_from[2].isascii() or not made_from[2].isdigit() or len(made_from[2]) > 15:
        raise Invalid("the form does not say which version was changed", hint="open the page of the resource again")
    version, kind, generation = made_from
    named = {"apiVersion": version, "kind": kind, "name": params.get("name", "")}
    return _written(params) | {"expected": [named | {"generation": int(generation)}]}


async def ask_delete(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a resource is deleted, and say what is deleted with it."""
    kind, name = params.get("kind", ""), params.get("name", "")
    if not kind or not name:
        raise NotFound("choose a resource first", hint="the page Resources shows all of them")
    try:
        planned = await visit.view.call("resources.delete", kind=kind, name=name, dry_run=True)
    except Conflict as error:
        return Question(f"Delete {name}?", (), ready=False, problem=f"It cannot be deleted now: {error}")
    events = sum(one.get("events", 0) for one in planned["changes"])
    lines = (*_changed(planned["changes"]), *await _lost_with_peer(visit, kind, name))
    return Question(f"Delete {name}?", lines, count=events or None)


async def _lost_with_peer(visit: Visit, kind: str, name: str) -> tuple[str, ...]:
    """Return what the deletion of an EventPeer ends, in sentences; none for another kind."""
    if kind.partition(".")[0].casefold() not in ("eventpeer", "eventpeers"):
        return ()
    link = (await visit.view.call("resources.describe", kind=kind, name=name)).get("status", {}).get("link")
    if link is None:
        return ()
    waiting, letters = counted(link["lagEvents"], "event"), counted(link["deadLetters"], "dead letter")
    verb = "waits" if link["lagEvents"] == 1 else "wait"
    return (
        f"{waiting} {verb} for {link['peer']}, and will not be sent; {letters} of the link will be dropped.",
        f"{link['peer']} keeps its own link to this node, until its EventPeer for this node is deleted there.",
    )


ACTIONS: Final = {
    "resources.apply": PageAction("Apply", "The resources are applied.", ask_apply, prepare=_applied),
    "resources.delete": PageAction("Delete", "The resource is deleted.", ask_delete, danger=True),
}
