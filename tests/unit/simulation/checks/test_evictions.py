"""An event that a node lacks is explained by its eviction there, or by a gap that the node has stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventd.simulation.checks.evictions import EvictedEvents
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.topology import PlannedLink, Topology

TOPOLOGY = Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=False), PlannedLink("b", "a", relay=False)])


class Tables:
    """The tables of one node: events with their positions, the gaps of the other node, and where its link began."""

    may_have_renewed = False

    def __init__(self, positions: Any = (), gone: Any = (), gaps: Any = (), began: int = 0) -> None:
        self.positions, self.gone, self._gaps, self._began = dict(positions), dict(gone), list(gaps), began
        self.evicted_position = self.lost_position = max(self.gone.values(), default=0)

    def ids(self) -> set[str]:
        return self.positions.keys() | self.gone.keys()

    def gaps(self, _node: str) -> list[tuple[int, int]]:
        return self._gaps

    def all_gaps(self) -> list[tuple[str, int, int, str]]:
        return [("a", after, upto, "lost") for after, upto in self._gaps]

    def began(self, _node: str) -> int:
        return self._began


def evicted(*, keeps: bool = False, **tables: Tables) -> EvictedEvents:
    every = cast("dict[str, StoredTables]", tables)
    return EvictedEvents(every, TOPOLOGY, {"a": SmallRetention(max_events=1, keeps=keeps)}, {"a-1": "door.open"})


@pytest.mark.parametrize(
    ("a", "b", "explained"),
    [
        (Tables(positions={"a-1": 4}), Tables(), False),  # it is still to be sent
        (Tables(gone={"a-1": 4}), Tables(), False),  # no gap has it
        (Tables(gone={"a-1": 4}), Tables(gaps=[(4, 5)]), False),  # the gap begins after it
        (Tables(gone={"a-1": 4}), Tables(gaps=[(3, 4)]), True),
        (Tables(gone={"a-1": 4}), Tables(gone={"a-1": 9}), True),  # b had it
        (Tables(gone={"a-1": 4}, began=4), Tables(), True),  # the link began later
        (Tables(), Tables(), False),  # a has never had it, or has forgotten it
    ],
)
def test_an_event_that_is_missing_at_a_peer_is_explained_or_not(a: Tables, b: Tables, explained: bool) -> None:
    assert evicted(a=a, b=b).explain("b", "a-1") == explained


def test_an_event_that_must_be_kept_for_a_peer_is_not_explained_by_a_later_begin() -> None:
    assert not evicted(keeps=True, a=Tables(gone={"a-1": 4}, began=4), b=Tables()).explain("b", "a-1")


@pytest.mark.parametrize(
    ("a", "b", "violations"),
    [
        (Tables(gone={"a-1": 4}), Tables(gaps=[(3, 4)]), 0),
        (Tables(gone={"a-1": 4}), Tables(gaps=[(3, 4)], positions={"a-1": 7}), 1),  # b has it
        (Tables(gone={"a-1": 4}), Tables(gaps=[(3, 9)]), 1),  # it ends beyond what is evicted
    ],
)
def test_a_gap_without_a_loss_is_named(a: Tables, b: Tables, violations: int) -> None:
    assert [each.invariant for each in evicted(a=a, b=b).violations(9.0)] == ["V10"] * violations


def test_nothing_says_what_a_peer_lacked_whose_link_was_removed() -> None:
    every = cast(
        "dict[str, StoredTables]", {"a": Tables(gone={"a-1": 4}), "b": Tables(gaps=[(3, 4)], positions={"a-1": 7})}
    )
    found = EvictedEvents(
        every, Topology("pair", ["a", "b"], []), {"a": SmallRetention(max_events=1)}, {"a-1": "door.open"}
    )
    assert list(found.violations(9.0)) == []
