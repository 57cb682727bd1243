"""The map of a group from all sides: each node's own report of its links, and reports of others where it has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    found = sorted(links.values(), key=lambda link: (link["from"], link["to"]))
    return {
        "group": group,
        "node": "",
        "nodes": [nodes[name] for name in sorted(nodes)],
        "links": found,
        "leftOut": max((shown["leftOut"] for shown in maps), default=0),
    }


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
