"""Links whose two ends disagree, of all groups: what the maps that all nodes have given lately say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eventd.console.many.joined_map import join_maps
from eventd.console.many.remote_node import RemoteNode


class Disagreements:
    """Counts links whose ends disagree. A group is counted again only after one of its maps has changed."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[list[int], Mapping[str, int]]] = {}
        self._maps: list[Mapping[str, Any]] = []

    def count(self, nodes: Sequence[RemoteNode]) -> dict[str, Mapping[str, int]]:
        """Return by group how many links of each node have ends that disagree. Silent nodes tell nothing."""
        maps: dict[str, list[Mapping[str, Any]]] = {}
        for node in nodes:
            if not (node.problem or node.refusal):
                for group, shown in (node.maps or {}).items():
                    maps.setdefault(group, []).append(shown)
        counted = {group: self._count_one(group, told) for group, told in maps.items()}
        self._counted = {group: self._counted[group] for group in counted}
        self._maps = [shown for told in maps.values() for shown in told]  # so that their ids stay theirs
        return counted

    def _count_one(self, group: str, told: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
        ids = [id(shown) for shown in told]
        known = self._counted.get(group)
        if known is None or known[0] != ids:
            known = self._counted[group] = ids, count_odd(join_maps(group, told, {})["links"])
        return known[1]


def count_odd(links: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return how many links of each node have ends that disagree."""
    return Counter(name for link in links if link["findings"] for name in (link["from"], link["to"]))
