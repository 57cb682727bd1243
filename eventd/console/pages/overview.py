"""The overview: what needs attention, the map of a group, and totals."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.drawing.map_links import SILENT, STATES, reporting_nodes, silent_nodes, table_rows
from eventd.console.drawing.map_picture import draw_map
from eventd.console.pages.link_problems import join_problems, list_findings, rank_problem, read_link_problems
from eventd.console.pages.targets import target_of
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.view.recent import RecentAnswer
from eventd.errors import EventdError

_MOST_PROBLEMS = 20
"""Maximum number of problems that the overview lists."""
_MOST_ROWS: Final = 100
"""Maximum number of links, and of nodes, in the tables below a map."""


async def show_overview(visit: Visit) -> ShownPage:
    """Show what needs attention, the map of `group` in the query, or of the first group, and the groups."""
    groups = await visit.groups()
    drawn = await _map(visit, [group["group"] for group in groups])
    problems = await _problems(visit, groups, drawn["map"])
    links: dict[str, int] = {}
    for group in groups:
        for state, count in group["links"].items():
            links[state] = links.get(state, 0) + count
    data = {
        "groups": groups,
        **problems,
        "links": links,
        "odd": _count_odd(drawn["map"]),
        "letters": await _count_letters(visit),
        "rates": await _node_rates(visit),
        **drawn,
    }
    return ShownPage("Overview", "overview.html", data)


async def _problems(visit: Visit, groups: list[dict[str, Any]], drawn: dict[str, Any] | None) -> dict[str, Any]:
    """Return the links that do not run now, the findings of the map, and the failed checks and warnings of doctor.

    `unseen`: the visitor may not see doctor's findings; `examined`: whether doctor has made all its checks yet;
    `as_of`: when it made them; `outdated`: an action was done since. The checks take long, so they may be older than
    the states of the links.
    """
    unseen = not visit.view.may("doctor.examine")
    known: list[RecentAnswer] = []
    scopes = [] if unseen else await visit.scopes_of_groups()
    for group in scopes:
        report = await visit.look("doctor.examine", even_outdated=True, **({"group": group} if group else {}))
        known += [] if report is None else [report]
    checks = [check for report in known for check in report.content["checks"] if check["status"] in ("warn", "fail")]
    links = await read_link_problems(visit, groups)
    found = [*join_problems(links, checks), *list_findings(drawn, links.links.keys())]
    found.sort(key=rank_problem)
    empty = {"detail": "", "remedy": "", "link": None}
    shown = [empty | one | {"target": target_of(visit, one)} for one in found[:_MOST_PROBLEMS]]
    return {
        "problems": shown,
        "more": len(found) - len(shown),
        "unseen": unseen,
        "examined": len(known) == len(scopes),
        "outdated": any(report.is_outdated for report in known),
        "as_of": min(report.at for report in known).isoformat() if known else "",
    }


async def _map(visit: Visit, groups: list[str]) -> dict[str, Any]:
    """Return the map of a group with its picture; if there is none, `trouble` has the reason."""
    asked = visit.asked("group")
    group = asked if asked in groups else groups[0] if groups else ""
    unknown = asked if asked != group else ""
    found: dict[str, Any] = {"group": group, "unknown": unknown, "map": None, "picture": None, "trouble": ""}
    found["states"] = STATES
    if not group or not visit.view.may("map.show", group):
        return found
    try:
        shown = await visit.view.call("map.show", group=group)
    except EventdError as error:
        return found | {"trouble": str(error)}
    own = shown["node"]
    linked = {link["to"] if link["from"] == own else link["from"] for link in shown["links"] if own in _ends(link)}
    nodes = sorted(shown["nodes"], key=lambda node: (node["answer"] != "self", node["answer"] not in SILENT))
    rows = table_rows(shown["links"][:_MOST_ROWS], silent_nodes(shown), reporting_nodes(shown))
    tables = {"nodes": nodes[:_MOST_ROWS], "links": rows}
    hidden = shown["leftOut"] + len(shown["links"]) - len(tables["links"])
    return found | {
        "map": shown | tables,
        "picture": draw_map(shown),
        "linked": linked,
        "hidden": hidden,
        "all": len(nodes),
    }


def _count_odd(shown: dict[str, Any] | None) -> int:
    """Return how many links of this node have ends that disagree, as far as the map of the page says."""
    links = [] if shown is None else shown["links"]
    return sum(bool(link["findings"]) for link in links if shown and shown["node"] in _ends(link))


def _ends(link: dict[str, Any]) -> tuple[str, str]:
    return link["from"], link["to"]


async def _count_letters(visit: Visit) -> tuple[int, bool]:
    """Return how many dead letters there are, and whether the number is exact; 0 if the visitor may not see them."""
    if not visit.view.may("dead_letters.all"):
        return 0, True
    try:
        found = await visit.look("dead_letters.all", even_outdated=True, limit=1)
    except EventdError:
        return 0, True
    if found is None:
        return 0, True
    exact = found.content.get("groupsComplete", True) and all(one["exact"] for one in found.content["groups"])
    return sum(one["count"] for one in found.content["groups"]), exact


async def _node_rates(visit: Visit) -> dict[str, float | None]:
    """Return the newest rates of the node; nothing for keys that are limited to prefixes."""
    try:
        series = (await visit.view.call("rates.show", kind="node", seconds=60))["series"]
    except EventdError:
        return {}
    return {name: values[-1] for one in series for name, values in one.items() if name != "kind" and values}
