"""The parts of the reconciliation, each by itself: bins, sums, links, cells, verdicts and findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eventd.audit.arrays.alterations import LedgerRow
from eventd.audit.arrays.bins import BINS, bins_of, edges_of, latency, quantile
from eventd.audit.arrays.columns import NEVER, Columns
from eventd.audit.arrays.counts import add_up, count, key_of, parts
from eventd.audit.assembly.assemble import StageResults, make_pairs
from eventd.audit.assembly.report_details import make_gaps
from eventd.audit.coverage.coverage import BlindSpot, Coverage
from eventd.audit.report.findings import Discrepancy, Kind, group_findings
from eventd.audit.report.objectives import ANY, Objective, read_conditions
from eventd.audit.report.report import Pair, Totals
from eventd.audit.segments.cells import Measure, sum_deliveries, sum_events
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary, summarize
from eventd.audit.segments.link_rows import ENDLESS, LinkRow, RowSelector, SelectionVersion
from eventd.audit.segments.plan import ClockOffset, LakePlan, NodeEpoch
from eventd.audit.segments.row_marks import PairKey, mark_deliveries, mark_events
from eventd.audit.verdicts import reconcile
from eventd.audit.verdicts.pair_figures import RowComparison, read_figures, read_senders, read_waiting
from eventd.audit.verdicts.row_comparison import compare, group_uneven, trails
from eventd.audit.verdicts.verdicts import DeliveryOutcome, Trail, judge
from eventd.errors import Invalid
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey
from eventd.lake.schema import COLUMNS, ColumnType, Ledger, arrow_schema
from eventd.runtime.clock import SECOND

EMPTY: dict[ColumnType, Any] = {
    ColumnType.INT64: 0,
    ColumnType.INT32: 0,
    ColumnType.INT16: 0,
    ColumnType.BOOL: False,
    ColumnType.STRING: "",
    ColumnType.WORD: "",
    ColumnType.TIME: 0,
    ColumnType.DIGEST: b"\0" * 32,
}
MINUTE = 60 * SECOND


def table(book: Ledger, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of a book; what is not given is empty, or null where that may be."""
    columns = []
    for column, field in zip(COLUMNS[book], arrow_schema(book), strict=True):
        values = [row.get(column.name, None if column.null else EMPTY[column.type]) for row in rows]
        form = pa.string() if column.type is ColumnType.WORD else field.type
        columns.append(pa.array(values, form).cast(field.type))
    return pa.Table.from_arrays(columns, schema=arrow_schema(book))


def print_of(number: int) -> int:
    """A fingerprint: large, so that sums of few of them wrap around."""
    return (number * 2**61 + 2**63) % 2**64 - 2**63


def stated(number: int, **more: Any) -> dict[str, Any]:
    """An event that `a` stated."""
    base = {"node": "a", "group": "g", "source": "a", "type": "t", "own": True, "fingerprint": print_of(number)}
    return {**base, "number": number, "position": number, "seq": number, "id": f"e{number}", **more}


def delivered(number: int, **more: Any) -> dict[str, Any]:
    """Its delivery to `b`."""
    base = {"node": "a", "group": "g", "peer": "b", "source": "a", "type": "t", "outcome": "delivered", "attempts": 1}
    return {**base, "fingerprint": print_of(number), "number": number, "position": number, "id": f"e{number}", **more}


def held(number: int, **more: Any) -> dict[str, Any]:
    """The same at `b`."""
    return {**stated(number), "node": "b", "own": False, "path": "a", **more}


TO_B = LinkRow("g", "b", (SelectionVersion("{}"),), settled=100)


def uneven(events: Sequence[dict[str, Any]], sent: Sequence[dict[str, Any]], there: Sequence[dict[str, Any]]) -> int:
    """Return in how many slots the ledgers differ."""
    made = [
        sum_events("1", Columns(table(Ledger.EVENTS, events)), [TO_B]),
        sum_deliveries("2", Columns(table(Ledger.DELIVERIES, sent)), {}),
        sum_events("3", Columns(table(Ledger.EVENTS, there)), []),
    ]
    cells = pa.concat_tables([one for one in made if one.num_rows]).unify_dictionaries().drop_columns(["segment"])
    far = 10**15
    return int(reconcile.reconcile(cells, {"a": far, "b": far})["uneven"].num_rows)


@pytest.mark.parametrize("algorithms", [["ed25519", None, None], [None, "ed25519", ""], [None, None]])
def test_a_word_that_is_null_is_empty_and_never_another_word(algorithms: list[str | None]) -> None:
    receipts = table(Ledger.RECEIPTS, [{"status": 200, "receipt_alg": one} for one in algorithms])
    signed = algorithms.count("ed25519")
    counted = {"": len(algorithms) - signed} | ({"ed25519": signed} if signed else {})
    assert summarize(Ledger.RECEIPTS, Columns(receipts), limit=0).algorithms == counted
    texts = receipts.set_column(0, "receipt_alg", receipts["receipt_alg"].cast(pa.string())).select([0])
    words = Columns(texts).words("receipt_alg")
    assert [words.values[code] for code in words.codes] == [one or "" for one in algorithms]


@pytest.mark.parametrize("span", [0, 1, 7, 8, 1000, 10**6, 86_400 * 10**6])
def test_a_span_lies_in_its_bin_and_a_bin_is_narrow(span: int) -> None:
    low, high = (float(edge[0]) for edge in edges_of(bins_of(np.array([span]))))
    assert low <= span < high
    assert high - low <= max(1.0, low / 8)


def test_what_only_a_wrong_clock_makes_counts_as_none_and_what_is_endless_as_the_last() -> None:
    assert bins_of(np.array([-5, 2**62])).tolist() == [0, BINS - 1]


def test_percentiles_lie_within_their_bin_and_never_beyond_the_longest() -> None:
    spans = np.arange(1, 1001) * 1000
    counts = dict(zip(*np.unique(bins_of(spans), return_counts=True), strict=True))
    told = latency({int(at): int(n) for at, n in counts.items()}, int(spans.max()))
    assert told.count == 1000
    assert told.p50 == pytest.approx(0.5, rel=0.125)
    assert told.p99 == pytest.approx(0.99, rel=0.125)
    assert told.max == 1.0
    assert quantile({1: 90, 3: 10}, 0.5) == 1
    assert quantile({1: 90, 3: 10}, 0.95) == 3


def test_sums_wrap_around_and_are_the_same_in_any_order() -> None:
    key = key_of((np.array([1, 1, 0, 1]), 2), (np.array([3, 3, 2, 3]), 4))
    sums = add_up(key, np.array([2**62, 2**62, 5, 2**62]), np.array([9, 8, 7, 6]))
    assert [sums.rows.tolist(), sums.total.tolist(), sums.low.tolist(), sums.high.tolist()] == [
        [1, 3],
        [5, 3 * 2**62 - 2**64],
        [7, 6],
        [7, 9],
    ]
    assert [part.tolist() for part in parts(sums.keys, key.sizes)] == [[0, 1], [2, 3]]
    assert count(key)[1].tolist() == [1, 3]


def test_books_that_agree_are_even_and_a_loss_a_repetition_or_an_exchange_is_not() -> None:
    events, sent, there = ([make(n) for n in (1, 2, 3)] for make in (stated, delivered, held))
    assert uneven(events, sent, there) == 0
    assert uneven(events, sent[:2], there[:2]) == 1
    assert uneven(events, sent, there[:2]) == 1
    assert uneven(events, [*sent, sent[0]], there) == 1
    assert uneven(events, [*sent[:2], sent[0]], [*there[:2], there[0]]) == 1
    assert uneven(events, sent, [*there[:2], held(5)]) == 1
    assert uneven(events, [delivered(n, outcome="expired") for n in (1, 2, 3)], []) == 0


def test_rows_are_compared_where_only_some_events_were_sent_because_sums_do_not_show_which_content_was() -> None:
    events, sent, there = ([make(n) for n in (1, 2, 3)] for make in (stated, delivered, held))
    assert uneven(events, [*sent[:2], delivered(3, outcome="expired")], there[:2]) == 1


@pytest.mark.parametrize(
    "change", [{"subject": "x"}, {"expires_at": 9}, {"type": "x"}, {"bytes": 9}, {"digest": b"x" * 32}, {"id": "x"}]
)
def test_ledgers_whose_rows_differ_in_any_column_are_uneven(change: dict[str, Any]) -> None:
    events, sent, there = ([make(n) for n in (1, 2, 3)] for make in (stated, delivered, held))
    assert uneven([*events[:2], stated(3, **change)], sent, there) == 1
    assert uneven(events, sent, [*there[:2], held(3, **change)]) == 1
    if not change.keys() & {"subject", "expires_at", "digest"}:
        assert uneven(events, [*sent[:2], delivered(3, **change)], there) == 1


def test_values_that_two_rows_exchange_make_a_slot_uneven() -> None:
    sent = [delivered(n) for n in (1, 2)]
    there = [held(1, subject="y"), held(2, subject="x")]
    assert uneven([stated(1, subject="x"), stated(2, subject="y")], sent, there) == 1


def test_what_a_link_has_not_come_to_waits_and_is_not_due() -> None:
    rows = Columns(table(Ledger.EVENTS, [stated(n) for n in (1, 2, 3)]))
    owed = RowSelector(rows).select(TO_B._replace(settled=2))
    assert (owed.due.tolist(), owed.ahead.tolist()) == ([True, True, False], [False, False, True])


def test_each_version_of_a_selection_counts_for_the_positions_it_went_through() -> None:
    narrow, wide = '{"types": ["x"]}', "{}"
    rows = Columns(table(Ledger.EVENTS, [stated(1), stated(2, type="x"), stated(3), stated(4)]))
    link = LinkRow("g", "b", (SelectionVersion(narrow, 0, 3), SelectionVersion(wide, 50, reached=1)), settled=4)
    owed = RowSelector(rows).select(link)
    # 1 was let in later and has been sent afterwards, 3 is still to be; 2 was wanted at once, 4 under the new version.
    assert (owed.due.tolist(), owed.ahead.tolist()) == ([True, True, False, True], [False, False, True, False])
    expired = Columns(table(Ledger.EVENTS, [stated(1, expires_at=40)]))
    assert not RowSelector(expired).select(link).due.any()


def test_a_link_owes_nothing_of_what_was_over_before_it_began() -> None:
    rows = Columns(
        table(Ledger.EVENTS, [stated(1, recorded_at=10), stated(2, recorded_at=30), stated(3, recorded_at=40)])
    )
    owed = RowSelector(rows).select(TO_B._replace(begins=2, created_at=20))
    assert owed.due.tolist() == [False, True, True]


def test_a_link_that_is_no_longer_declared_owes_nothing_after_its_last_receipt() -> None:
    rows = Columns(table(Ledger.EVENTS, [stated(n) for n in (1, 2, 3)]))
    owed = RowSelector(rows).select(TO_B._replace(versions=(SelectionVersion("{}", upto=2),), settled=2))
    assert (owed.due.tolist(), owed.ahead.tolist()) == ([True, True, False], [False, False, False])


def test_a_link_that_does_not_look_back_owes_what_each_version_selected_after_its_beginning() -> None:
    narrow, wide = '{"relay": true, "types": ["x"], "sources": ["a", "c"]}', '{"relay": true}'
    events = [stated(1, type="x"), stated(2), stated(3, type="x"), stated(4, type="x", source="b"), stated(5)]
    rows = Columns(table(Ledger.EVENTS, [*events, stated(6, source="b", own=False)]))
    versions = (SelectionVersion(narrow, 0, 4), SelectionVersion(wide, 50))
    link = LinkRow("g", "a/callback:hook", versions, 5, begins=1, created_at=ENDLESS, looks_back=False)
    owed = RowSelector(rows).select(link)
    assert owed.due.tolist() == [False, False, True, False, True, False]
    assert owed.ahead.tolist() == [False] * 5 + [True]
    for after in range(6):  # as the link is described for a segment
        part = RowSelector(rows).select(link.within(after, after + 1))
        assert (part.due[after], part.ahead[after]) == (owed.due[after], owed.ahead[after])


def test_latencies_to_the_peer_are_corrected_by_its_clock() -> None:
    from eventd.audit.segments.cells import HourlySkew

    row = delivered(1, event_at=0, attempt_at=SECOND, done_at=2 * SECOND, peer_recorded_at=41 * SECOND)
    cells = sum_deliveries("1", Columns(table(Ledger.DELIVERIES, [row])), {"b": HourlySkew((0,), (39 * SECOND,))})
    longest = {row["what"]: row["high"] for row in cells.to_pylist()}
    assert longest[Measure.PEER_RECORDED] == SECOND
    assert longest[Measure.WHOLE] == 2 * SECOND


def coverage(**spots: BlindSpot) -> Coverage:
    plan = LakePlan(clocks={("a", "b"): [ClockOffset(0, 0, 0)], ("b", "a"): [ClockOffset(0, 0, 0)]})
    found = Coverage(plan, until={"a": 1000, "b": 1000})
    for name, spot in spots.items():
        node, book = name.split("_")
        found.blind_spots[node, Ledger(book)].append(spot)
    return found


EXPIRING = LedgerRow("a", "e", 7, "e1", "t", 5, 100, 3, expires_at=15)


def trail(**more: Any) -> Trail:
    nothing = dict.fromkeys(Trail._fields, 0) | {
        "arrived_at": None,
        "sent_node": "a",
        "due_node": "a",
        "due_epoch": "e",
        **dict.fromkeys(("due_row", "delivery_row", "source_row", "peer_row")),
    }
    ends = {"group": "g", "source": "a", "peer": "b", "type": "t", "id": "e1", "seq": 7, "origin": 1, "due": 1}
    times = {"due_at": 10, "sent_at": 20, "done_at": 21, "held_at": 30}
    return Trail(**{**nothing, **ends, **times, **more})


@pytest.mark.parametrize(
    ("more", "outcome", "kinds"),
    [
        ({}, DeliveryOutcome.MISSING, ["missing"]),
        ({"held": 1}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
        ({"sent": 1, "senders": 1}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"sent": 2, "senders": 1, "repeated": 1, "again": 1, "held": 1}, DeliveryOutcome.DELIVERED, ["duplicate"]),
        ({"sent": 2, "senders": 1, "repeated": 1, "asked": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
        ({"sent": 2, "senders": 2, "held": 1}, DeliveryOutcome.DELIVERED, ["loop"]),
        ({"source": "b", "due": 0, "sent": 1, "senders": 1}, DeliveryOutcome.FOREIGN, ["loop"]),
        ({"origin": 0, "due": 0, "held": 1, "seq": 0}, DeliveryOutcome.FOREIGN, ["forged"]),
        ({"origin": 0, "due": 0, "sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, ["erased"]),
        ({"ahead": 1, "due": 0}, DeliveryOutcome.PENDING, []),
        ({"ahead": 1}, DeliveryOutcome.PENDING, []),
        ({"expired": 1}, DeliveryOutcome.EXPIRED, []),
        ({"expired": 1, "due_row": EXPIRING}, DeliveryOutcome.EXPIRED, []),
        ({"expired": 1, "due_row": EXPIRING._replace(expires_at=NEVER)}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"refused": 1, "sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
    ],
)
def test_what_became_of_an_event(more: dict[str, Any], outcome: DeliveryOutcome, kinds: list[str]) -> None:
    verdict = judge(trail(**more), coverage())
    assert (verdict.outcome, [discrepancy.kind.value for discrepancy in verdict.discrepancies]) == (outcome, kinds)


def test_silence_proves_nothing_where_a_book_does_not_reach() -> None:
    gone = BlindSpot(why="gone")
    assert judge(trail(), coverage(a_deliveries=gone)).outcome is DeliveryOutcome.UNPROVEN
    assert judge(trail(held=1), coverage(a_deliveries=gone))[:2] == (DeliveryOutcome.DELIVERED, ())
    assert judge(trail(sent=1, senders=1), coverage(b_events=gone)).outcome is DeliveryOutcome.UNPROVEN
    assert judge(trail(sent=1, senders=1), coverage(b_events=BlindSpot())).outcome is DeliveryOutcome.DELIVERED
    forged = trail(origin=0, due=0, held=1, seq=0)
    assert judge(forged, coverage(a_events=gone))[:2] == (DeliveryOutcome.FOREIGN, ())
    assert judge(trail(sent=1, senders=1, done_at=2000), coverage())[:2] == (DeliveryOutcome.DELIVERED, ())
    assert judge(forged._replace(held_at=2000), coverage()).discrepancies == ()


TO_PEER = PairKey("g", "a", "b")


@pytest.mark.parametrize(("expires_at", "doubtful"), [(40, 0), (None, 1)])
def test_only_an_event_with_an_expiry_may_have_expired(expires_at: int | None, doubtful: int) -> None:
    slots = {TO_PEER: np.array([0])}
    marks = [
        *mark_events(Columns(table(Ledger.EVENTS, [stated(1, expires_at=expires_at)])), [TO_B], slots),
        *mark_deliveries(Columns(table(Ledger.DELIVERIES, [delivered(1, outcome="expired")]))),
    ]
    assert trails(pa.concat_tables(marks), {"a", "b"}).num_rows == doubtful


@pytest.mark.parametrize("times", [2, 127, 128, 129, 256])
@pytest.mark.parametrize("keeping", [{"a"}, {"a", "b"}])
def test_any_number_of_repetitions_is_noticed(times: int, keeping: set[str]) -> None:
    slots = {TO_PEER: np.array([0])}
    sent = mark_deliveries(Columns(table(Ledger.DELIVERIES, [delivered(1, id="e1")] * times)))
    marks = [*mark_events(Columns(table(Ledger.EVENTS, [stated(1)])), [TO_B], slots), *sent]
    if "b" in keeping:
        marks += mark_events(Columns(table(Ledger.EVENTS, [held(1)])), [], slots)
    (row,) = trails(pa.concat_tables(marks), keeping).to_pylist()
    assert (row["sent"], row["repeated"], row["expired"]) == (times, times - 1, 0)


def restored(sent: Sequence[dict[str, Any]] = (), there: Sequence[dict[str, Any]] = ()) -> Pair:
    """Return the figures of a -> b. Its first epoch recorded e1 at 10 s; its second, of a copy, has not come to it."""
    since, ended = 50 * SECOND, TO_B._replace(settled=ENDLESS)
    row = stated(1, recorded_at=10 * SECOND)
    epochs = [Columns(table(Ledger.EVENTS, [row | {"epoch": name}])) for name in ("e1", "e2")]
    ways = [(epochs[0], [ended], -ENDLESS), (epochs[1], [TO_B._replace(settled=0)], since)]
    ways.append((Columns(table(Ledger.EVENTS, there)), [], -ENDLESS))
    sends = Columns(table(Ledger.DELIVERIES, sent))
    cells = [sum_events(str(at), *way) for at, way in enumerate(ways)] + [sum_deliveries("4", sends, {})]
    parts = reconcile.reconcile(pa.concat_tables(cells).unify_dictionaries(), {"a": 10**9, "b": 10**9})
    slots = group_uneven([parts["uneven"]])
    marks = [mark for rows, links, begin in ways for mark in mark_events(rows, links, slots, begin)]
    marks += mark_deliveries(sends) if slots else []
    known = Coverage(LakePlan(), until={"a": 10**9, "b": 10**9})
    found = compare(pa.concat_tables(marks), known) if marks else {}
    (pair,) = make_pairs(
        StageResults(
            survey=Survey(LakeHead(id="l", made_at=0), [], [], []),
            plan=known.plan,
            coverage=known,
            summaries={},
            figures=read_figures(parts["pairs"].to_pylist()),
            hours=[],
            waiting=read_waiting(parts["waiting"].to_pylist()),
            senders=read_senders(parts["senders"].to_pylist()),
            comparison=RowComparison.from_tables({name: [one] for name, one in found.items()}),
        ),
        {ANY: Objective()},
    )
    return pair


def test_an_event_that_a_restored_node_has_yet_to_send_is_expected_once_and_pending() -> None:
    pair = restored()
    assert (pair.expected, pair.pending, pair.delivered, pair.missing, pair.unproven) == (1, 1, 0, 0, 0)
    assert pair.oldest_open_gap is not None
    assert (pair.lag, pair.oldest_open_gap.seconds) == (990.0, 1000.0)


@pytest.mark.parametrize("there", [[], [held(1, recorded_at=12 * SECOND)]], ids=["disputed", "delivered"])
def test_an_event_that_a_node_sent_before_it_was_restored_counts_once(there: list[dict[str, Any]]) -> None:
    sent = delivered(1, id="e1", attempt_at=11 * SECOND, done_at=13 * SECOND)
    pair = restored([sent], there)
    assert (pair.expected, pair.delivered, pair.disputed) == (1, len(there), 1 - len(there))
    assert (pair.pending, pair.lag, pair.oldest_open_gap is None) == (0, 0.0, bool(there))


def test_the_earliest_slot_may_be_in_another_part_than_the_event_that_was_recorded_first() -> None:
    pair = TO_PEER._asdict()
    parts = [{**pair, "low": 10, "time": 7}, {**pair, "low": 20, "time": 3}]
    assert read_waiting(parts) == read_waiting(reversed(parts)) == {TO_PEER: (10, 3)}


def test_neighbours_are_one_finding_and_others_are_not() -> None:
    facts = [Discrepancy(Kind.MISSING, "g", "a", "b", seq, f"e{seq}") for seq in (7, 5, 6, 9)]
    facts += [
        Discrepancy(Kind.MISSING, "g", "a", "c", 8, "e8"),
        Discrepancy(Kind.FORGED, "g", "a", "b", 0, "x"),
        facts[0],
    ]
    found = [(one.kind.value, one.peer, one.first, one.last, one.ids) for one in group_findings(facts)]
    assert found == [
        ("missing", "b", 5, 7, ("e5", "e6", "e7")),
        ("missing", "b", 9, 9, ("e9",)),
        ("missing", "c", 8, 8, ("e8",)),
        ("forged", "b", 0, 0, ("x",)),
    ]


def test_a_finding_of_many_tells_how_many_it_names() -> None:
    (found,) = group_findings(Discrepancy(Kind.MISSING, "g", "a", "b", seq, f"e{seq}") for seq in range(1, 6))
    short = found.shortened(2)
    assert (short.ids, short.count, short.events, found.events) == (("e1", "e2"), 5, 5, 5)


def test_conditions_are_kinds_and_a_share_and_nothing_else() -> None:
    missing, share = read_conditions(["missing, completeness<99.99"])
    (found,) = group_findings([Discrepancy(Kind.MISSING, "g", "a", "b", 1, "e1")])
    assert missing.is_met(Totals(), [found])
    assert not missing.is_met(Totals(), [])
    assert share.is_met(Totals(completeness=99.9899), [])
    assert not share.is_met(Totals(completeness=99.99), [])
    assert share.is_met(Totals(completeness=None), []), "what cannot be proven is not reached"
    (unproven,) = read_conditions(["unproven,"])
    assert unproven.is_met(Totals(completeness=None), [found]), "books that do not reach may hide more than was found"
    assert not unproven.is_met(Totals(completeness=99.0), [found])
    for wrong in ("lost", "completeness<101", "completeness>5", "", " , "):
        with pytest.raises(Invalid, match="is not a condition"):
            read_conditions([wrong])


def test_a_declared_gap_runs_from_the_node_whose_events_are_lost_to_the_peer_that_should_have_them() -> None:
    own = DeclaredGap("g", "b", "e", 0, 4, "deliveries_lost", 0)  # a evicted events before it shipped these deliveries
    reported = DeclaredGap("g", "b", "e", 0, 4, "lost", 0)  # b told a that it had lost events for it
    alone = DeclaredGap("g", "", "e", 0, 4, "events_lost", 0)
    plan = LakePlan()
    results = StageResults(
        survey=Survey(LakeHead(id="l", made_at=0), [], [], []),
        plan=plan,
        coverage=Coverage(plan),
        summaries={NodeEpoch("a", "e"): [LedgerSummary(gaps=[own, reported, alone])]},
        figures={},
        hours=[],
        waiting={},
        senders={},
    )
    ways = {(gap.source, gap.peer, gap.reason) for gap in make_gaps(results)}
    assert ways == {("a", "b", "deliveries_lost"), ("b", "a", "lost"), ("a", "", "events_lost")}
