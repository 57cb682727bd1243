"""The map of a group from all sides: each node's own report of its links, and reports of others where it has none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

_BETTER: Final = ("self", "answered", "relayed", "older", "not-shared", "pending", "unasked", "unreachable", "invalid")
"""The words for how much is known of a node, the best first."""


def join_maps(group: str, maps: Sequence[Mapping[str, Any]], silent: Mapping[str, float]) -> dict[str, Any]:
    """Return one answer of `map.show` for those of several nodes. `silent`: nodes that do not answer us, since when.

    A node's report about itself has precedence over reports about it by other nodes. For a silent node, only reports
    count that other nodes got from it after it became silent, because earlier reports show it as it was before.
    """
    nodes: dict[str, dict[str, Any]] = {}
    links: dict[tuple[str, str], dict[str, Any]] = {}
    for shown in maps:
        for node in shown["nodes"]:
            known = nodes.get(node["node"])
            if known is None or _rank(node) < _rank(known):
                nodes[node["node"]] = dict(node)
        for link in shown["links"]:
            _join_link(links.setdefault((link["from"], link["to"]), _empty(link)), link, shown["node"])
    for name, node in nodes.items():
        if name in silent:
            node |= {"answer": "unreachable", "via": ""}
        elif node["answer"] == "self":
            node |= {"answer": "answered"}
    for link in links.values():
        for end, owner in (("sender", link["from"]), ("receiver", link["to"])):
            if link[end] is not None and link[end]["ageSeconds"] >= silent.get(owner, math.inf):
                link[end] = None
    for shown in maps:
        for link in shown["links"]:
            if link["findings"] and not silent.keys() & {link["from"], link["to"]}:
                _add_hearsay(links[link["from"], link["to"]], link)
    for ends in _one_sided(links, {str(shown["node"]) for shown in maps if not shown["leftOut"]} - silent.keys()):
        links[ends]["findings"] = [
            f"{ends[0]} has no link to {ends[1]} any more, though {ends[1]} has one to {ends[0]}"
        ]
    found = sorted(links.values(), key=lambda link: (link["from"], link["to"]))
    return {
        "group": group,
        "node": "",
        "nodes": [nodes[name] for name in sorted(nodes)],
        "links": found,
        "leftOut": max((shown["leftOut"] for shown in maps), default=0),
    }


def _add_hearsay(known: dict[str, Any], link: Mapping[str, Any]) -> None:
    """Add the findings of a node between, if neither end has any and the end that it misses is missing still.

    After a link was deleted at one end, the two ends do not hear of each other: one refuses the other's questions.
    """
    lacking = [end for end in ("sender", "receiver") if link[end] is None]
    if lacking and not known["findings"] and all(known[end] is None for end in lacking):
        known["findings"] = list(link["findings"])


def _one_sided(links: Mapping[tuple[str, str], Mapping[str, Any]], told: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield the links without a finding that were deleted at their source, though the other direction is there.

    `told`: the nodes whose own maps are joined here: they may not hear of each other.
    """
    for (source, target), link in links.items():
        back = links.get((target, source))
        was = link["sender"] is None and link["receiver"] is not None and link["receiver"]["silentSeconds"] is not None
        if was and {source, target} <= told and back and back["sender"] is not None and not link["findings"]:
            yield source, target


def _rank(node: Mapping[str, Any]) -> tuple[int, float]:
    answer = node["answer"]
    return _BETTER.index(answer) if answer in _BETTER else len(_BETTER), node["ageSeconds"] or 0.0


def _empty(link: Mapping[str, Any]) -> dict[str, Any]:
    return {"from": link["from"], "to": link["to"], "sender": None, "receiver": None, "findings": []}


def _join_link(known: dict[str, Any], link: Mapping[str, Any], by: str) -> None:
    """Add the ends of a link that a node reports: its own end, and the other end if that report is newer than the
    known one."""
    for end, owner in (("sender", link["from"]), ("receiver", link["to"])):
        new, old = link[end], known[end]
        if new is not None and (old is None or by == owner or new["ageSeconds"] < old["ageSeconds"]):
            known[end] = new
    if link["findings"] and (by == link["from"] or (by == link["to"] and not known["findings"])):
        known["findings"] = list(link["findings"])  # the end that knows of none may not have heard of the other
