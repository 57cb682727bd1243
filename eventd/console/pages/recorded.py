"""Actions: the record of who did what, to what, with which result."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from eventd.console.pages.visit import ShownPage, Visit, unfit_page
from eventd.errors import Invalid

FILTERS: Final = ("who", "operation", "object", "result", "since", "until")
_REFUSALS: Final = ("unauthorized", "forbidden")
_STATES: Final = {"ok": "ok", "started": "started"}


async def show_recorded(visit: Visit) -> ShownPage:
    """Show the recorded actions that fit the filters of the query, newest first."""
    given = {name: text for name in (*FILTERS, "after") if (text := visit.asked(name))}
    data: dict[str, Any] = {"problem": "", "filtered": any(visit.asked(name) for name in FILTERS)}
    try:
        found = await visit.view.call("actions.list", limit=visit.limit, **given)
    except Invalid as error:
        return unfit_page("Actions", "recorded.html", data | {"rows": [], "next": "", "searched_to": None}, error)
    data |= {
        "rows": [_row(one) for one in found["actions"]],
        "next": found["next"],
        "searched_to": found["searchedTo"],
    }
    return ShownPage("Actions", "recorded.html", data, live=not visit.asked("after"))


def _row(one: dict[str, Any]) -> dict[str, Any]:
    """Return an action with its arguments as `given`, and its result as `state` and `reason`.

    `last`: of several refused actions in one row, the object of the last. Arguments that repeat the object, or that
    the request did not set, are left out.
    """
    result, arguments = one["result"], dict(one["arguments"])
    state = _STATES.get(result) or ("refused" if result in _REFUSALS else "failed")
    last = arguments.pop("object", "") if not one["object"] else ""
    said = set(re.split("[ /]", one["object"]))
    given = [
        f"{name}: {_text(value)}"
        for name, value in arguments.items()
        if value not in (None, False, "", [], {}) and not (isinstance(value, str) and value in said)
    ]
    return {**one, "given": given, "state": state, "reason": "" if result in _STATES else result, "last": last}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
