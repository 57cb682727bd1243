"""Resources: what is declared, one resource with its state, applying and deleting."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import Conflict, EventdError, NotFound

_SOURCE: Final = "form"
"""The name of the source of what the form holds, in messages."""
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
    """Return the kind of a resource for its URL: with its version and API group where the kind alone is ambiguous.

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


_PLANNED: Final = {name: f"is {name}" for name in ("created", "configured", "deleted")} | {
    "unchanged": "stays as it is"
}
"""What happens to a resource, by the word of the plan: nothing has happened yet."""


def _changed(changes: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the planned changes in sentences; the number of events or records that are deleted, too."""
    lines = []
    for one in changes[:MOST_ROWS]:
        lost = next((f", with its {one[what]:,} {what}" for what in ("events", "records") if what in one), "")
        adopted = ", and takes over what was made through the API" if one.get("adopted") else ""
        lines.append(f"{one['kind']} {one['name']} {_PLANNED.get(one['action'], one['action'])}{lost}{adopted}.")
    if len(changes) > MOST_ROWS:
        lines.append(f"And {len(changes) - MOST_ROWS:,} more.")
    return tuple(lines)


async def ask_apply(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for resources, then whether to make the changes that they cause.

    `seen` of the parameters stands for the changes that the visitor was shown: others are shown first.
    """
    text, seen = params.get("text", ""), params.pop("seen", "")
    if not text:
        lines = ("The next page shows what would change. Resources that the text does not name stay.",)
        return Question("Apply resources", lines, fields=_FIELDS, ready=False)
    try:
        changes = (await visit.view.call("resources.diff", **_sources(params)))["changes"]
    except EventdError as error:
        return Question("Apply resources", (f"Nothing was applied: {error}",), fields=_FIELDS, ready=False)
    shown = [text.split(), params.get("adopt") == _ADOPT, changes]
    params["seen"] = hashlib.sha256(json.dumps(shown).encode()).hexdigest()
    diff = "\n".join(one["diff"] for one in changes if one.get("diff"))
    ready = seen == params["seen"]
    return Question("Apply these changes?", _changed(changes), fields=_FIELDS, ready=ready, diff=diff)


def _sources(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the operation for the fields of the form."""
    sources = [{"name": _SOURCE, "text": params.get("text", "")}]
    return {"sources": sources, "adopt": params.get("adopt") == _ADOPT}


async def ask_delete(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a resource is deleted, and say what goes with it."""
    kind, name = params.get("kind", ""), params.get("name", "")
    if not kind or not name:
        raise NotFound("choose a resource first", hint="the page Resources shows all of them")
    try:
        planned = await visit.view.call("resources.delete", kind=kind, name=name, dry_run=True)
    except Conflict as error:
        return Question(f"Delete {name}?", (f"It cannot be deleted now: {error}",), ready=False)
    events = sum(one.get("events", 0) for one in planned["changes"])
    return Question(f"Delete {name}?", _changed(planned["changes"]), count=events or None)


ACTIONS: Final = {
    "resources.apply": PageAction("Apply", "The resources are applied.", ask_apply, prepare=_sources),
    "resources.delete": PageAction("Delete", "The resource is deleted.", ask_delete, danger=True),
}
