"""Actions: the record of who did what, to what, with which result."""

from __future__ import annotations

import json
from typing import Any, Final

from eventd.console.pages.visit import ShownPage, Visit

FILTERS: Final = ("who", "operation", "object", "result", "since", "until")
_REFUSALS: Final = ("unauthorized", "forbidden")
_STATES: Final = {"ok": "ok", "started": "started"}


async def show_recorded(visit: Visit) -> ShownPage:
    """Show the recorded actions that fit the filters of the query, newest first."""
    given = {name: text for name in (*FILTERS, "after") if (text := visit.asked(name))}
    found = await visit.view.call("actions.list", limit=visit.limit, **given)
    data = {
        "rows": [_row(one) for one in found["actions"]],
        "next": found["next"],
        "searched_to": found["searchedTo"],
        "filtered": any(visit.asked(name) for name in FILTERS),
    }
    return ShownPage("Actions", "recorded.html", data, live=not visit.asked("after"))


def _row(one: dict[str, Any]) -> dict[str, Any]:
    """Return an action with its arguments as `given`, and its result as `state` and `reason`."""
    result = one["result"]
    state = _STATES.get(result) or ("refused" if result in _REFUSALS else "failed")
    given = [f"{name}: {_text(value)}" for name, value in one["arguments"].items()]
    return {**one, "given": given, "state": state, "reason": "" if result in _STATES else result}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
