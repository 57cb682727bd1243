"""What is known of a node without an answer of it: its last answer, and what the other nodes report of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eventd.console.many.remote_node import RemoteNode

Maps = Mapping[str, Mapping[str, Any]]
"""Answers of `map.show` for one group, by the names of the nodes that gave them."""


def groups_of(node: RemoteNode, others: list[RemoteNode]) -> dict[str, str]:
    """Return the groups of a node, each with its name there.

    If it never answered, they are those in which another node knows a node of its name.
    """
    if node.summary is not None:
        maps = node.summary.maps
        names = [str(one["group"]) for one in node.summary.groups]
        return {name: str(maps[name]["node"]) if name in maps else node.name for name in names}
    known = (
        group
        for other in others
        if other.summary is not None
        for group, shown in other.summary.maps.items()
        if any(each["node"] == node.name for each in shown["nodes"])
    )
    return {group: node.name for group in sorted(set(known))}


def list_reports(group: str, name: str, maps: Maps) -> Iterator[dict[str, Any]]:
    """Yield what each other node reports of its link to the node called `name`, and of what it has received from it."""
    for context, shown in maps.items():
        own = shown["node"]
        links = {(link["from"], link["to"]): link for link in shown["links"]}
        sender = (links.get((own, name)) or {}).get("sender")
        receiver = (links.get((name, own)) or {}).get("receiver")
        if own != name and (sender or receiver):
            yield {"group": group, "context": context, "name": name, "sender": sender, "receiver": receiver}
