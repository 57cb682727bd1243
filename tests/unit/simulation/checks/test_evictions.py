"""An event that a node lacks is explained by its eviction there, or by a gap that the node has stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.evictions import EvictedEvents
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.loop import BEGIN
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.topology import PlannedLink, Topology

TOPOLOGY = Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=False), PlannedLink("b", "a", relay=False)])


class Tables:
    """The tables of one node: events with their positions, the gaps of the other node, and where its link began."""

    may_have_renewed = False

    def __init__(
        self,
        positions: Any = (),
        gone: Any = (),
        gaps: Any = (),
        began: int = 0,
        gone_at: Any = (),
        head: int = 0,
        noted: Any = (),
    ) -> None:
        self._noted = list(noted)
        self.positions, self.gone, self._gaps, self._began = dict(positions), dict(gone), list(gaps), began
        self.evicted_position = self.lost_position = max(self.gone.values(), default=0)
        self.gone_at, self.evicted_seq, self.head_seq = dict(gone_at), len(self.gone), head or len(self.gone)

    def ids(self) -> set[str]:
        return self.positions.keys() | self.gone.keys()

    def gaps(self, _node: str) -> list[tuple[int, int]]:
        return self._gaps

    def all_gaps(self) -> list[tuple[str, int, int, str]]:
        return [("a", after, upto, "lost") for after, upto in self._gaps]

    def reported_losses(self, _node: str) -> list[tuple[int, int]]:
        return self._noted

    def began(self, _node: str) -> int:
        return self._began


def evicted(*, keeps: bool = False, **tables: Tables) -> EvictedEvents:
    every = cast("dict[str, StoredTables]", tables)
    return EvictedEvents(every, TOPOLOGY, {"a": SmallRetention(max_events=0, keeps=keeps)}, emitted("a-1"))


def emitted(*ids: str) -> EmittedContents:
    """Return what is known of events that were all emitted 5 s after the run began."""
    events = [{"id": name, "type": "door.open"} for name in ids]
    return EmittedContents(Journal([Asked("emit", "a", BEGIN + 5, BEGIN + 5, 200, {"events": events}, None)]))


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
        (Tables(gone={"a-1": 4}, noted=[(3, 4)]), Tables(gaps=[(3, 4)]), 0),
        (Tables(gone={"a-1": 4}, noted=[(3, 4)]), Tables(gaps=[(3, 4)], positions={"a-1": 7}), 1),  # b has it
        (Tables(gone={"a-1": 4}, noted=[(3, 4)]), Tables(gaps=[(3, 9)]), 2),  # it ends beyond what is evicted
    ],
)
def test_a_gap_without_a_loss_is_named(a: Tables, b: Tables, violations: int) -> None:
    assert [each.invariant for each in evicted(a=a, b=b).violations(9.0)] == ["V10"] * violations


def test_nothing_says_what_a_peer_lacked_whose_link_was_removed() -> None:
    every = cast(
        "dict[str, StoredTables]", {"a": Tables(gone={"a-1": 4}), "b": Tables(gaps=[(3, 4)], positions={"a-1": 7})}
    )
    found = EvictedEvents(every, Topology("pair", ["a", "b"], []), {"a": SmallRetention(max_events=0)}, emitted("a-1"))
    assert list(found.violations(9.0)) == []


@pytest.mark.parametrize(
    ("retention", "ages", "head", "violations"),
    [
        (SmallRetention(max_age=5.0), (9.0, 4.5), 2, []),  # wall times may be wrong by a second
        (SmallRetention(max_age=5.0), (9.0, 3.0), 2, ["V3"]),
        (SmallRetention(max_age=5.0, is_clock_set=True), (9.0, 3.0), 2, []),
        (SmallRetention(max_events=1, max_age=5.0), (3.0, 9.0), 2, []),  # the first one is beyond the number
        (SmallRetention(max_events=1, max_age=5.0), (9.0, 3.0), 2, ["V3"]),
        (SmallRetention(max_events=1, max_age=5.0), (9.0, 3.0), 3, []),
    ],
)
def test_an_event_that_was_evicted_too_early_is_named(
    retention: SmallRetention, ages: tuple[float, float], head: int, violations: list[str]
) -> None:
    times = {f"a-{number}": BEGIN + 5 + age for number, age in enumerate(ages)}
    tables = Tables(gone={"a-0": 1, "a-1": 2}, gone_at=times, head=head)
    every = cast("dict[str, StoredTables]", {"a": tables, "b": Tables()})
    found = EvictedEvents(every, TOPOLOGY, {"a": retention}, emitted("a-0", "a-1")).violations(99.0)
    assert [each.invariant for each in found] == violations


def test_of_evicted_events_with_later_records_any_may_have_been_among_the_last() -> None:
    tables = Tables(gone={"a-0": 1}, gone_at={"a-0": BEGIN + 8.0}, head=2)
    tables.evicted_seq = 2
    every = cast("dict[str, StoredTables]", {"a": tables, "b": Tables()})
    retention = SmallRetention(max_events=1, max_age=5.0)
    assert list(EvictedEvents(every, TOPOLOGY, {"a": retention}, emitted("a-0")).violations(99.0)) == []


@pytest.mark.parametrize(
    ("noted", "gaps", "keeps", "violations"),
    [
        ([(0, 4)], [(0, 4)], False, 0),
        ([(0, 6)], [(0, 4)], False, 0),  # a was killed before it knew of b's answer
        ([(0, 4), (0, 6)], [(0, 4), (4, 6)], False, 0),
        ([], [(0, 4)], False, 1),
        ([(4, 6)], [(0, 4)], False, 1),
        ([(0, 4)], [], True, 1),  # a keeps it for b
        ([(0, 9)], [], False, 1),  # it ends beyond what is evicted
    ],
)
def test_a_loss_in_a_ledger_is_the_gap_of_the_peer(noted: Any, gaps: Any, keeps: bool, violations: int) -> None:
    a = Tables(gone={"a-1": 4, "a-2": 6}, noted=noted)
    found = evicted(keeps=keeps, a=a, b=Tables(gaps=gaps)).violations(9.0)
    assert sum(each.invariant == "V10" and "ledger" in each.detail for each in found) == violations


@pytest.mark.parametrize(
    ("noted", "renewed", "explained"), [([(3, 4)], False, True), ([(0, 3)], False, False), ([], True, True)]
)
def test_an_event_that_did_not_come_over_v1_is_explained_by_the_ledger_of_its_sender(
    noted: Any, renewed: bool, explained: bool
) -> None:
    sender = Tables(gone={"a-1": 4}, noted=noted)
    sender.may_have_renewed = renewed
    over_v1 = Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=False, protocol="v1")])
    every = cast("dict[str, StoredTables]", {"a": sender, "b": Tables()})
    found = EvictedEvents(every, over_v1, {"a": SmallRetention(max_events=0, keeps=False)}, emitted("a-1"))
    assert found.explain("b", "a-1") == explained
