"""Batches that the ledger of a peer has, and of which the ledger of their sender shows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns
from eventd.audit.coverage.coverage import BlindSpot, Coverage
from eventd.audit.report.findings import UNCLAIMED_BATCH, Discrepancy, Kind
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary, summarize
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.audit.verdicts import unclaimed_batches as module
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.reconcile import CellFilter
from eventd.audit.verdicts.unclaimed_batches import ProgressOf, unclaimed_batches, unclaimed_discrepancies
from eventd.lake.manifest import GroupState, LakeHead, NodeState, PeerState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from tests.support.batch_tables import AT, HOUR, inbound, receipt, receipt_cells, segment_of
from tests.support.ledger_rows import Row, columns_of, ledger_table

ALWAYS = (0, 1_000_000)
BEYOND = 100
"""A position that is after all those of batches."""


def received(batch: int, **fields: Any) -> Row:
    return inbound(batch, link_epoch="e", **fields)


def findings(
    receipts: Sequence[Row],
    copies: Sequence[Row],
    *,
    cursor: int | None = BEYOND,
    until: int = AT + HOUR,
    spots: Sequence[tuple[Ledger, BlindSpot]] = (),
    gaps: Sequence[DeclaredGap] = (),
    hours: tuple[int, int] = ALWAYS,
    acknowledged: Sequence[tuple[int, int]] = (),
    progress: ProgressOf = lambda segment: None,
    reads: list[Ledger] | None = None,
    counted: dict[str, int] | None = None,
    others: Sequence[Discrepancy] = (),
    pairs: set[str] | None = None,
) -> list[str]:
    """Return the ids of the batches of `a` that are in dispute; its link to `b` has passed `cursor` (None: no link).

    `reads` gets the ledger of each segment that is read, `counted` the numbers of batches that are not named, `pairs`
    the peers with any such batch.
    """
    peers = () if cursor is None else (PeerState(peer="b", cursor=cursor),)
    group = GroupState(group="g", peers=peers)
    state = NodeState(
        node="a", epoch="e", instance="i", began_at=0, as_of=until, head=9, complete_until=until, groups=(group,)
    )
    tables = {
        Ledger.RECEIPTS: ledger_table(Ledger.RECEIPTS, receipts),
        Ledger.INBOUND: ledger_table(Ledger.INBOUND, copies),
    }
    segments = [
        segment_of("a", Ledger.RECEIPTS, 9, (AT, AT + HOUR)),
        segment_of("b", Ledger.INBOUND, 9, (AT, AT + HOUR)),
    ]

    def read(segment: Segment, names: Sequence[str]) -> pa.Table:
        if reads is not None:
            reads.append(segment.place.book)
        return tables[segment.place.book].select([*names])

    plan = LakePlan(acknowledged={(NodeEpoch("a", "e"), "g", "b"): [*acknowledged]})
    coverage = Coverage(plan, until={"a": until, "b": until})
    for book, spot in spots:
        coverage.blind_spots["a", book].append(spot)
    cells = receipt_cells(receipts, copies)
    kept = cells.filter(pa.array(CellFilter({}, {}, hours).counts(Columns(cells)))).combine_chunks()
    unclaimed = unclaimed_batches(kept, hours)
    survey = Survey(LakeHead(id="l", made_at=0), [state], segments, [])
    summaries = {NodeEpoch("b", "f"): [LedgerSummary(gaps=[*gaps])]}
    ledgers = LedgerRows(segments, read)
    found = unclaimed_discrepancies([unclaimed], survey, summaries, coverage, ledgers, hours, progress, others)
    if pairs is not None:
        pairs |= {pair.peer for pair in found.pairs}
    if counted is not None:
        counted.update({key.peer: n for key, n in found.unnamed.items()})
    assert {(one.kind, one.source, one.peer, one.detail) for one in found.named} <= {
        (Kind.DISAGREEMENT, "a", "b", UNCLAIMED_BATCH)
    }
    return [one.id for one in found.named]


def test_a_batch_whose_receipt_the_sender_has_is_claimed() -> None:
    assert findings([receipt(1), receipt(2)], [received(1), received(2)]) == []


def test_a_batch_that_the_link_has_passed_and_of_which_the_sender_has_no_row_is_in_dispute() -> None:
    """It does not matter whether another sender delivered its events to the peer, too."""
    assert findings([receipt(1), receipt(3)], [received(1), received(2), received(3)]) == ["batch-2"]
    known = {"accepted": 0, "duplicates": 1}
    assert findings([receipt(1), receipt(3)], [received(2, **known)]) == ["batch-2"]


def test_all_batches_of_a_link_that_the_sender_no_longer_shows_are_in_dispute() -> None:
    assert findings([], [received(1), received(2)], cursor=None) == ["batch-1", "batch-2"]
    assert findings([receipt(1, peer="a/callback:x")], [received(1)], cursor=None) == ["batch-1"]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"batch_id": "again"}, id="under another id"),
        pytest.param({"batch_id": "again", "after": 0, "upto": 9}, id="with more positions"),
        pytest.param({"batch_id": "", "receipt_digest": "", "status": 0}, id="as expired"),
        pytest.param({"batch_id": "", "receipt_digest": "", "protocol": "v1"}, id="by the older protocol"),
        pytest.param({"batch_id": "again", "acked_at": AT + HOUR // 2}, id="half an hour later"),
    ],
)
def test_a_batch_whose_answer_was_lost_and_whose_events_were_sent_again_is_no_dispute(row: Row) -> None:
    assert findings([receipt(2, **row)], [received(2)]) == []


def test_a_batch_whose_answer_the_sender_still_waits_for_is_no_dispute() -> None:
    assert findings([receipt(1)], [received(1), received(2)], cursor=1) == []
    assert findings([receipt(1), receipt(3)], [received(2)], cursor=1) == ["batch-2"], "the cursor was taken back"


def test_the_receipt_of_a_batch_may_not_be_shipped_yet() -> None:
    assert findings([], [received(1)], until=AT + 1) == []
    assert findings([], [received(1)], cursor=None, until=AT + 1) == []


@pytest.mark.parametrize("fields", [{"accepted": 0, "duplicates": 0}, {"repair": True, "after": 0, "upto": 0}])
def test_a_batch_without_events_and_one_of_a_repair_prove_nothing_about_the_link(fields: Row) -> None:
    assert findings([], [received(1, **fields)]) == []


@pytest.mark.parametrize("book", [Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS])
def test_a_sender_whose_ledgers_may_lack_rows_of_that_time_or_later_is_not_in_dispute(book: Ledger) -> None:
    for times in ((0, AT), (AT + HOUR // 2, AT + HOUR)):
        assert findings([], [received(1)], spots=[(book, BlindSpot(times=times))]) == []
    assert findings([], [received(1)], spots=[(book, BlindSpot(times=(0, AT - 1)))]) == ["batch-1"]


def test_a_batch_of_an_epoch_without_a_state_is_not_judged() -> None:
    assert findings([], [inbound(1, link_epoch="of before")]) == []


def test_positions_that_the_sender_reported_as_lost_need_no_row() -> None:
    assert findings([], [received(2)], gaps=[DeclaredGap("g", "a", "e", 0, 2, "lost", AT)]) == []
    assert findings([], [received(3)], gaps=[DeclaredGap("g", "a", "e", 0, 2, "lost", AT)]) == ["batch-3"]


def test_only_batches_of_the_requested_hours_are_judged() -> None:
    hour = AT // HOUR
    copies = [received(at, recorded_at=AT + (at - 2) * HOUR) for at in (1, 2, 3)]
    receipts = [receipt(1, acked_at=AT - HOUR)]
    assert findings(receipts, copies[:2], hours=(hour, hour + 1)) == ["batch-2"], "the receipt of 1 is not read"
    assert findings(receipts, copies, until=AT + 9 * HOUR, hours=(hour, hour + 1)) == ["batch-2"]


def test_rows_that_are_missing_from_the_time_after_the_link_had_passed_a_batch_excuse_nothing() -> None:
    lost = [(Ledger.RECEIPTS, BlindSpot(times=(AT + HOUR // 2, AT + HOUR)))]
    receipts, copies = [receipt(1), receipt(3)], [received(2)]
    for passed, disputed in ((AT + 1, ["batch-2"]), (AT + HOUR // 2, []), (AT - HOUR, ["batch-2"])):
        assert findings(receipts, copies, spots=lost, acknowledged=[(3, passed)]) == disputed
    assert findings(receipts, copies, spots=lost, acknowledged=[(1, AT)]) == [], "of later positions nothing is known"


@pytest.mark.parametrize(("upto", "disputed"), [(9, []), (10, ["batch-2"]), (10**15 - 1, ["batch-2"])])
def test_a_row_without_a_request_explains_no_batch_if_its_range_is_beyond_the_log(
    upto: int, disputed: list[str]
) -> None:
    unsent = {"batch_id": "", "receipt_digest": "", "status": 0, "after": 0, "upto": upto}
    assert findings([receipt(2, **unsent)], [received(2)]) == disputed
    assert findings([receipt(2, **unsent | {"status": 200})], [received(2)]) == [], "another check is for receipts"


def test_one_of_several_overlapping_rows_explains_a_batch() -> None:
    rows = [receipt(1, after=0, upto=7), receipt(2, after=2, upto=3), receipt(3, after=3, upto=4)]
    assert findings(rows, [received(6, batch_id="other")], cursor=9) == []
    assert findings(rows, [received(8), received(9)], cursor=9) == ["batch-8", "batch-9"]


@pytest.mark.parametrize(
    ("receipts", "cursor", "disputed", "is_read"),
    [
        pytest.param([receipt(1), receipt(2)], BEYOND, ["batch-5"], False, id="earlier positions"),
        pytest.param([receipt(5, peer="c")], BEYOND, ["batch-5"], False, id="another link"),
        pytest.param([receipt(9)], BEYOND, ["batch-5"], False, id="later positions"),
        pytest.param([receipt(1), receipt(9)], BEYOND, ["batch-5"], True, id="earlier and later positions"),
        pytest.param([receipt(5, batch_id="again")], BEYOND, [], True, id="the same positions"),
        pytest.param([receipt(9)], 1, ["batch-5"], True, id="the link passed the batch"),
        pytest.param([receipt(4)], 1, [], True, id="the link came nearer to the batch"),
    ],
)
def test_receipts_are_read_only_where_they_may_explain_a_batch(
    receipts: Sequence[Row], cursor: int, disputed: list[str], is_read: bool
) -> None:
    """By the progress of links, which an audit keeps of each segment."""
    progress = summarize(Ledger.RECEIPTS, columns_of(Ledger.RECEIPTS, [*receipts]), limit=9).progress
    reads: list[Ledger] = []
    copies = [received(5)]
    assert findings(receipts, copies, cursor=cursor, progress=lambda segment: progress, reads=reads) == disputed
    assert (Ledger.RECEIPTS in reads) is is_read
    assert findings(receipts, copies, cursor=cursor) == disputed


def test_of_many_batches_some_are_named_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    copies = [received(number, recorded_at=AT + 9 - number) for number in range(1, 9)]
    counted: dict[str, int] = {}
    assert findings([], copies, counted=counted) == ["batch-8", "batch-7", "batch-6"], "the first ones"
    assert counted == {"b": 5}


def test_batches_that_are_only_counted_are_judged_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    copies = [received(number, recorded_at=AT + number) for number in range(1, 9)]
    again = [receipt(number, batch_id=f"again-{number}") for number in (5, 6, 8)]
    counted: dict[str, int] = {}
    assert findings(again, copies, counted=counted) == ["batch-1", "batch-2", "batch-3"]
    assert counted == {"b": 2}, "4 and 7"


def test_batches_that_are_in_another_finding_already_are_neither_named_nor_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    copies = [received(number, recorded_at=AT + number) for number in range(1, 9)]
    others = [Discrepancy(Kind.FORGED, "g", "a", "b", id=f"batch-{number}") for number in (2, 7)]
    others += [Discrepancy(Kind.FORGED, "g", "a", "another", id="batch-3")]
    counted: dict[str, int] = {}
    assert findings([], copies, counted=counted, others=others) == ["batch-1", "batch-3", "batch-4"]
    assert counted == {"b": 3}, "5, 6 and 8"


def test_a_pair_of_which_another_finding_names_every_batch_has_unclaimed_ones_all_the_same() -> None:
    """Its completeness is not known, whatever the finding is called."""
    pairs: set[str] = set()
    forged = [Discrepancy(Kind.FORGED, "g", "a", "b", id="batch-1")]
    assert findings([], [received(1)], others=forged, pairs=pairs) == []
    assert pairs == {"b"}
    pairs.clear()
    assert findings([receipt(1)], [received(1)], pairs=pairs) == []
    assert pairs == set()


def test_each_segment_is_read_once_however_many_batches_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    copies = [received(number, recorded_at=AT + number) for number in range(1, 60)]
    again = [receipt(number, batch_id=f"again-{number}") for number in range(1, 60)]
    reads: list[Ledger] = []
    assert findings(again, copies, reads=reads) == []
    assert reads == [Ledger.INBOUND, Ledger.RECEIPTS]


def test_a_batch_that_the_peer_recorded_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 2)
    counted: dict[str, int] = {}
    copies = [received(1), received(1), received(2), received(2)]
    assert findings([], copies, counted=counted) == ["batch-1", "batch-2"]
    assert counted == {}


def test_a_batch_with_a_long_range_is_found_beside_others_that_begin_later() -> None:
    copies = [received(1, after=0, upto=50), received(20), received(60)]
    assert findings([receipt(40)], copies) == ["batch-20", "batch-60"]
    assert findings([receipt(20), receipt(70)], copies) == ["batch-60"]
    assert findings([receipt(20, after=19, upto=21), receipt(60)], copies) == []


def test_batches_that_are_explained_leave_room_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    copies = [received(number, recorded_at=AT + number) for number in range(1, 9)]
    again = [receipt(number, batch_id=f"again-{number}") for number in range(1, 6)]
    counted: dict[str, int] = {}
    assert findings(again, copies, counted=counted) == ["batch-6", "batch-7", "batch-8"]
    assert counted == {}
