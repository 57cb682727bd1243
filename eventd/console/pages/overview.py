"""The overview: what needs attention, and the state of each group."""

from __future__ import annotations

from typing import Any

from eventd.console.pages.visit import ShownPage, Visit

_MOST_PROBLEMS = 20
"""Maximum number of problems that the overview lists."""


async def show_overview(visit: Visit) -> ShownPage:
    """Show the problems that doctor finds, and the groups."""
    groups = await visit.groups()
    problems, unseen = await _problems(visit)
    links = [(state, count) for group in groups for state, count in group["links"].items()]
    totals: dict[str, int] = {}
    for state, count in links:
        totals[state] = totals.get(state, 0) + count
    data = {
        "groups": groups,
        "problems": problems[:_MOST_PROBLEMS],
        "more": len(problems) - _MOST_PROBLEMS,
        "unseen": unseen,
        "links": totals,
    }
    return ShownPage("Overview", "overview.html", data)


async def _problems(visit: Visit) -> tuple[list[dict[str, Any]], bool]:
    """Return the failed checks and the warnings of doctor, and whether the visitor may not see them."""
    if not visit.view.may("doctor.examine"):
        return [], True
    examined = await visit.view.call("doctor.examine")
    return [check for check in examined["checks"] if check["status"] in ("warn", "fail")], False
