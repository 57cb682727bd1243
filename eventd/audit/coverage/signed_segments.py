"""The segments of a node in the lake, compared with the lines that it has signed of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from eventd.audit.coverage.file_tree_findings import NOT_SIGNED, FileTreeFindings
from eventd.audit.coverage.tree_lines import TreeLines
from eventd.audit.segments.plan import NodeEpoch
from eventd.lake.file_tree import LineKind
from eventd.lake.layout import ARCHIVE, SegmentName, state_path
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from eventd.text.plural import counted


def judge_segments(
    survey: Survey,
    state: NodeState,
    lines: TreeLines,
    segments: Iterable[Segment],
    made: FileTreeFindings,
    *,
    began_anew: bool,
) -> None:
    """Compare the manifests that exist with their lines.

    Those that are older than the tree count as in earlier versions, unless the node had a tree before this one.
    """
    segments = [*segments]
    digests, unsigned = lines.digests({one.place.name for one in segments})
    begins = lines.numbers(LineKind.BEGIN)
    older, archived, pending = list[SegmentName](), list[SegmentName](), list[SegmentName]()
    for one in segments:
        place, found = one.place, survey.digests.get(one.place.manifest)
        if place.name in digests:
            if found not in digests[place.name]:
                made.fault_in_segment(state.node, place, "its manifest is not the one that the node signed")
        elif place.upto <= begins.get(place.book.value, 0):
            older.append(place)
        elif place.tree == ARCHIVE:
            (pending if found in unsigned.get(place.name, ()) else archived).append(place)
        elif place.upto <= _reach_of(state, place.book) or found not in unsigned.get(place.name, ()):
            # The line of a later segment, which is not signed yet, is written before its manifest.
            made.fault_in_segment(state.node, place, "the node did not sign that it wrote this segment")
    for places, why, hint in (
        (
            older if began_anew else [],
            "older than the present tree of the node's files, which is not its first one",
            "only the rows of trees are proven there",
        ),
        (
            archived,
            "written to the archive by another program than the node",
            "the running node compares it with what it wrote itself, and signs it within a day if the rows are equal",
        ),
    ):
        if places:
            message = f"{counted(len(places), 'segment')} of {state.node} {'is' if len(places) == 1 else 'are'} {why}"
            made.doubt(state.node, NOT_SIGNED, places[0].name, message, hint)
    if pending:
        message = f"{state.node} has not signed yet that it wrote {counted(len(pending), 'segment')} of the archive"
        hint = "audit again when the node has reported: it signs them within a minute"
        made.doubt(state.node, NOT_SIGNED, pending[0].name, message, hint)


def _reach_of(state: NodeState, book: Ledger) -> int:
    """Return up to which number the state has segments of a ledger; 0 without any, which is signed as well."""
    reach = state.segments.get(book)
    return 0 if reach is None else reach.upto


def judge_removed(
    survey: Survey, state: NodeState, lines: TreeLines, segments: Iterable[Segment], made: FileTreeFindings
) -> None:
    """Look for the rows of each segment that was shipped: in itself, in another one, or removed by retention."""
    spans: defaultdict[Ledger, list[tuple[int, int]]] = defaultdict(list)
    for one in sorted(segments, key=lambda one: (one.after, one.upto)):
        joined = spans[one.place.book]
        if joined and one.after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], one.upto))
        else:
            joined.append((one.after, one.upto))
    drops, withdrawn, expired = lines.numbers(LineKind.DROP), list[SegmentName](), ""
    for place in lines.shipped():
        if is_dropped := place.upto <= drops.get(place.book.value, 0):
            expired = max(expired, place.day)
        joined = spans[place.book]
        at = bisect_right(joined, place.after, key=lambda span: span[0]) - 1
        covered = at >= 0 and place.upto <= joined[at][1]
        if covered or place.manifest in survey.digests or is_dropped:
            continue
        reach = state.segments.get(place.book)
        if reach is not None and place.upto <= reach.after:
            withdrawn.append(place)
        else:
            made.fault_in_segment(state.node, place, "the node signed that it wrote this segment: it is gone")
    made.withdrawn[NodeEpoch(state.node, state.epoch)] = withdrawn
    if expired:
        made.expired[state.node].append((state.began_at, expired))


def doubt_removed(state: NodeState, made: FileTreeFindings) -> None:
    """Doubt the segments that retention has removed, and that the node has not signed to be removed.

    A node signs the removal of segments of its present epoch only. What its own retention has removed there explains
    that the segments of an earlier epoch are gone that are no newer.
    """
    day = max((day for began_at, day in made.expired[state.node] if began_at > state.began_at), default="")
    withdrawn = [one for one in made.withdrawn.get(NodeEpoch(state.node, state.epoch), ()) if one.day > day]
    if withdrawn:
        where, count = state_path(state.node, state.epoch), counted(len(withdrawn), "segment")
        message = f"retention has removed {count} of {state.node}, which the node has not signed"
        hint = (
            "the node signs what its own EVENTD_LAKE_RETENTION removes of its present epoch, when it reports; this also"
            " explains what is gone of earlier epochs up to the same day; about `routerctl lake retain` ask the"
            " operators"
        )
        made.doubt(state.node, NOT_SIGNED, where, message, hint)
