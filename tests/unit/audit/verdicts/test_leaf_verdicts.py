"""Rows of other nodes are compared with the leaves of a tree in ranges of bounded size, as far as it is proven."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eventd.audit.coverage.coverage import BlindSpot, Coverage
from eventd.audit.report.findings import EventEvidence, Finding, Kind
from eventd.audit.report.report import TreeReport
from eventd.audit.segments.leaf_comparison import LEAVES, MOST_LEAVES, CutRange, OtherRow
from eventd.audit.segments.own_digests import DatedDigest
from eventd.audit.segments.plan import LakePlan
from eventd.audit.segments.tree_leaves import LeafClaims, LeafRun, TreeLeaves
from eventd.audit.verdicts.leaf_verdicts import (
    find_equal,
    judge_leaves,
    limit_comparison,
    plan_leaf_tasks,
    task_basis,
    task_name,
)
from eventd.lake.layout import landing
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

TREE = "t" * 16
PROVEN = LEAVES * 2 + 100


def segment(node: str, after: int) -> Segment:
    place = landing(Ledger.EVENTS, node, "e" * 16, after, after + 1, at=0)
    values = {"bytes": 1, "sha256": f"{after:064d}", "slots": (0, 0), "times": (0, 0), "written_at": 0}
    manifest = Manifest(
        book=Ledger.EVENTS, node=node, epoch="e" * 16, after=after, upto=after + 1, rows=1, payloads=False, **values
    )
    return Segment(place, manifest)


def own(first: int, end: int, tiles: bytes = b"") -> TreeLeaves:
    return TreeLeaves([LeafRun("g", TREE, first, end, b"", tiles, b"", [], (1, 1), (1, 1), (0, 0))])


def claims(first: int, last: int, *, tree: str = TREE, group: str = "g") -> TreeLeaves:
    return TreeLeaves(claims=[LeafClaims(group, tree, first, last)])


def report(key: str = "pinned", *, node: str = "a", proven: int = PROVEN) -> TreeReport:
    values = {"size": PROVEN, "proven": proven, "checkpoints": 1, "signed_at": "", "root": "", "key": key}
    return TreeReport(group="g", node=node, tree=TREE, **values)


ORIGIN = [(segment("a", 0), own(1, LEAVES + 5)), (segment("a", 1), own(LEAVES + 5, PROVEN))]


def test_a_task_has_the_segments_that_may_have_its_leaves() -> None:
    others = [(segment("b", 0), claims(5, LEAVES + 9)), (segment("c", 0), claims(PROVEN - 1, 10**14))]
    tasks = [*plan_leaf_tasks([*ORIGIN, *others], [report()])]
    assert [(one.first, one.end, len(one.origin), [each.manifest.node for each in one.others]) for one in tasks] == [
        (0, LEAVES, 1, ["b"]),
        (LEAVES, LEAVES * 2, 2, ["b"]),
        (LEAVES * 2, PROVEN, 1, ["c"]),
    ]
    assert len({task_basis(one) for one in tasks}) == 3


def test_a_segment_is_only_in_the_tasks_that_it_claims_leaves_of() -> None:
    far = TreeLeaves(claims=[LeafClaims("g", TREE, 5, 5), LeafClaims("g", TREE, PROVEN - 2, PROVEN - 1)])
    honest = segment("c", 0), claims(LEAVES + 10, LEAVES + 20)
    tasks = [*plan_leaf_tasks([*ORIGIN, (segment("b", 0), far), honest], [report()])]
    assert [(one.first, [each.manifest.node for each in one.others]) for one in tasks] == [
        (0, ["b"]),
        (LEAVES, ["c"]),
        (LEAVES * 2, ["b"]),
    ]
    assert [len(one.origin) for one in tasks] == [1, 1, 1], "the segment with the leaves before is not near the claim"


def test_ranges_in_the_same_segments_are_one_task_up_to_a_limit() -> None:
    ranges = [LeafClaims("g", TREE, at * LEAVES + 1, (at + 1) * LEAVES - 1) for at in range(10)]
    whole = (segment("a", 0), own(1, 10 * LEAVES)), (segment("b", 0), TreeLeaves(claims=ranges))
    tasks = [*plan_leaf_tasks(whole, [report(proven=10 * LEAVES)])]
    assert [(one.first, one.end) for one in tasks] == [(0, MOST_LEAVES), (MOST_LEAVES, 10 * LEAVES)]
    named = {task_name(one): one for one in tasks}
    differs = other_row(1, 2)
    assert [*find_equal(named, [])] == [*named]
    assert [*find_equal(named, [differs])] == [*named][1:]
    assert [*find_equal(named, [replace(differs, leaf=10 * LEAVES - 1)])] == [*named][:1]


def test_rows_that_were_not_looked_for_are_a_limitation() -> None:
    [one] = limit_comparison([CutRange("g", "a", TREE, LEAVES)])
    assert (one.kind, one.where) == ("unproven", f"eventd/g/a/{TREE}")
    assert "of the leaves from 262,144 on, more than 1,000 rows differ from the leaf" in one.message


def test_what_is_not_proven_is_not_compared() -> None:
    for other in (claims(PROVEN, PROVEN + 5), claims(1, 5, tree="u" * 16), claims(1, 5, group="h")):
        assert not [*plan_leaf_tasks([*ORIGIN, (segment("b", 0), other)], [report()])]
    assert not [*plan_leaf_tasks([*ORIGIN, (segment("b", 0), claims(1, 5))], [report("other")])]
    assert not [*plan_leaf_tasks([*ORIGIN, (segment("a", 2), claims(1, 5))], [report()])], "of the node itself"


def test_tiles_whose_rows_were_not_checked_are_not_compared() -> None:
    tiles = b"".join(bytes([one]) * 32 for one in (1, 0, 1))  # zeros: not chosen
    for origin, proven, skipped in (
        ([own(1, 1100, tiles)], 1100, (2,)),
        ([own(1, 300), own(301, 1100)], 1100, (1,)),
        ([own(1, 300), own(300, 1100)], 1100, ()),
        ([own(1, 1100)], 1050, ()),
        ([own(600, 1100)], 1100, (0, 1, 2)),
    ):
        segments = [(segment("a", at), one) for at, one in enumerate(origin)]
        (task,) = plan_leaf_tasks([*segments, (segment("b", 0), claims(1, 1099))], [report(proven=proven)])
        assert task.skipped == skipped
    assert task_basis(task) != task_basis(task._replace(skipped=()))


def test_a_tree_of_another_node_with_the_same_id_stands_in_for_none() -> None:
    shadow = segment("m", 0), own(1, PROVEN)
    both = [report(), report(node="m")]
    for order in (both, both[::-1]):
        tasks = [*plan_leaf_tasks([*ORIGIN, shadow, (segment("b", 0), claims(5, 9))], order)]
        assert [(one.node, [each.name for each in one.origin]) for one in tasks] == [
            ("a", [segment("a", 0).place.name]),
            ("m", [segment("m", 0).place.name]),
        ]


SHIPPED = 1_000_000_000
MARGIN = 1_000_000


def other_row(event_at: int, recorded_at: int) -> OtherRow:
    return OtherRow("g", "a", TREE, 5, "b", "a", "e5", b"x" * 32, event_at, recorded_at)


def find_none(wanted: Sequence[DatedDigest]) -> set[bytes]:
    """Stand for a lake without an own event with any of these digests."""
    return set()


@pytest.mark.parametrize("observed", [0, 5 * SHIPPED])
@pytest.mark.parametrize(("recorded", "accused"), [(SHIPPED - MARGIN - 1, True), (SHIPPED, False)])
def test_a_row_is_forged_only_once_its_source_has_shipped_all_of_its_time(
    observed: int, recorded: int, accused: bool
) -> None:
    row = other_row(observed, recorded)
    coverage = Coverage(LakePlan(), {"a": SHIPPED, "b": SHIPPED})
    assert bool(judge_leaves([row], find_none, (), coverage)) is accused
    assert not judge_leaves([row], find_none, (), Coverage(LakePlan(), {"b": SHIPPED})), "no state of the source"
    coverage.contested.add("a")
    assert not judge_leaves([row], find_none, (), coverage)


def test_a_row_that_its_publisher_dates_in_the_future_may_be_one_of_the_missing_ones() -> None:
    coverage = Coverage(LakePlan(), {"a": SHIPPED})
    coverage.blind_spots["a", Ledger.EVENTS].append(BlindSpot(times=(SHIPPED // 4, SHIPPED // 2), why="gone"))
    for event_at, recorded_at, accused in ((SHIPPED * 2, SHIPPED // 3, False), (SHIPPED // 5, SHIPPED // 5, True)):
        assert bool(judge_leaves([other_row(event_at, recorded_at)], find_none, (), coverage)) is accused


def test_a_digest_is_looked_for_at_the_times_that_the_peer_and_the_source_give_its_event() -> None:
    coverage, sought = Coverage(LakePlan(), {"a": SHIPPED}), list[DatedDigest]()

    def find_all(wanted: Sequence[DatedDigest]) -> set[bytes]:
        sought.extend(wanted)
        return {one.digest for one in wanted}

    evidence = (EventEvidence(id="e5", at="1970-01-01T00:01:00Z"), EventEvidence(id="e6", at="1970-01-01T00:02:00Z"))
    altered = Finding(Kind.ALTERED, "g", "a", "b", 5, 6, ("e5", "e6"), evidence=evidence)
    assert not judge_leaves([other_row(1, 2)], find_all, [altered], coverage)
    assert [one.at for one in sought] == [1, 60_000_000]
    assert not judge_leaves([], lambda _: pytest.fail("nothing is in doubt"), [altered], coverage)
