"""Rows of other nodes are compared with the leaves of a tree in ranges of bounded size, as far as it is proven."""

from __future__ import annotations

from eventd.audit.report.report import TreeReport
from eventd.audit.segments.leaf_comparison import LEAVES
from eventd.audit.segments.tree_leaves import LeafClaims, LeafRun, TreeLeaves
from eventd.audit.verdicts.leaf_verdicts import plan_leaf_tasks, task_basis
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


def own(first: int, end: int) -> TreeLeaves:
    return TreeLeaves([LeafRun("g", TREE, first, end, b"", b"", b"", [], (1, 1), (1, 1), (0, 0))])


def claims(first: int, last: int, *, tree: str = TREE, group: str = "g") -> TreeLeaves:
    return TreeLeaves(claims=[LeafClaims(group, tree, first, last)])


def report(key: str = "pinned") -> TreeReport:
    values = {"size": PROVEN, "proven": PROVEN, "checkpoints": 1, "signed_at": "", "root": "", "key": key}
    return TreeReport(group="g", node="a", tree=TREE, **values)


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


def test_what_is_not_proven_is_not_compared() -> None:
    for other in (claims(PROVEN, PROVEN + 5), claims(1, 5, tree="u" * 16), claims(1, 5, group="h")):
        assert not [*plan_leaf_tasks([*ORIGIN, (segment("b", 0), other)], [report()])]
    assert not [*plan_leaf_tasks([*ORIGIN, (segment("b", 0), claims(1, 5))], [report("other")])]
    assert not [*plan_leaf_tasks([*ORIGIN, (segment("a", 2), claims(1, 5))], [report()])], "of the node itself"
