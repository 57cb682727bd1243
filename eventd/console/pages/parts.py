"""Parts: the configuration that plugins have derived, and its changes to the declared resources."""

from __future__ import annotations

import json
from typing import Any, Final

from eventd.console.pages.actions import PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import NotFound

_MOST_EVENTS: Final = 20
"""Maximum number of events of a part that its page names."""
_MOST_TEXT: Final = 64 << 10
"""Maximum number of characters of a plugin's proposal that the page of a part shows."""


async def show_parts(visit: Visit) -> ShownPage:
    """Show a page of the parts, the latest observed first, or of those of `owner` in the query."""
    owner, after = visit.asked("owner"), visit.asked("after")
    found: dict[str, Any] = {"parts": None, "next": None}
    if visit.view.sees(""):
        found = await visit.view.call("dynamic.list", owner=owner, after=after, limit=visit.limit)
    rows = [{**part, "owner": _owner_of(part["source"])} for part in found["parts"] or ()]
    data = {"parts": rows, "readable": found["parts"] is not None, "owner": owner, "next": found["next"]}
    return ShownPage("Parts", "parts.html", data, live=not after)


def _owner_of(source: str) -> str:
    """Return the owner of a part, which is its source without the digest of its events."""
    return "/".join(source.split("/")[:2])


async def show_effective(visit: Visit) -> ShownPage:
    """Show how the parts change the declared resources, and which of them have no effect."""
    found = None
    if visit.view.sees(""):
        found = await visit.view.call("dynamic.diff", show_diff=True)
        found |= {name: found[name][:MOST_ROWS] for name in ("suppressed", "setAside", "warnings")} | {
            "counts": {name: len(found[name]) for name in _COUNTED},
        }
    return ShownPage("Effective configuration", "effective.html", {"found": found, "most": MOST_ROWS})


_COUNTED: Final = ("activeParts", "expiredParts", "setAside", "suppressed", "addedResources", "warnings")


async def show_part(visit: Visit) -> ShownPage:
    """Show one part; the source of an owner leads to the list of its parts. Raises NotFound."""
    source = visit.names["source"]
    found = (await visit.view.call("dynamic.describe", source=source))["parts"]
    if not found:
        hint = "it has ended and was deleted, or never existed; the page Parts shows the others"
        raise NotFound(f"no part has the source {source[:200]}", hint=hint)
    part = found[0]
    if part["source"] != source:
        return ShownPage("Parts", "parts.html", target=visit.urls.to("parts", owner=source))
    lists = {"Resources": part["resources"], "Directives": part["directives"], "Plans": part.get("actionPlans", [])}
    data = {
        "part": {"error": "", **part},
        "owner": _owner_of(source),
        "events": part["eventIds"][:_MOST_EVENTS],
        "gives": part["gives"][:MOST_ROWS],
        "texts": {title: json.dumps(value, indent=2, ensure_ascii=False) for title, value in lists.items() if value},
        "most": _MOST_TEXT,
    }
    return ShownPage(f"Part {source}", "part.html", data)


async def ask_delete(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a part is deleted, and name what ends with it. Raises NotFound."""
    source = params.get("source", "")
    found = (await visit.view.call("dynamic.describe", source=source))["parts"] if source else []
    part = next((one for one in found if one["source"] == source), None)
    if part is None:
        raise NotFound(f"no part has the source {source[:200]}", hint="the page Parts shows all of them")
    gives, masks = part["gives"], len(part["directives"])
    lines = [f"{one['kind']} {one['name']} ends." for one in gives[:20]]
    if len(gives) > 20:
        lines.append(f"And {len(gives) - 20:,} more resources end.")
    if masks:
        lines.append(f"Its {masks:,} directives end: resources that they mask are in effect again.")
    if not lines:
        lines.append("It contributes nothing now.")
    lines.append("A plugin may propose the same again.")
    return Question(f"Delete the part {source}?", tuple(lines), count=len(gives) or None)


ACTIONS: Final = {
    "dynamic.delete": PageAction("Delete", "The part is deleted.", ask_delete, danger=True),
}
