"""Why a sender did not send an event is believed only where other rows confirm it, or no row could refute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from eventd.audit.coverage.coverage import BlindSpot, Coverage, RefusedRow
from eventd.audit.coverage.holes import Hole
from eventd.audit.report.findings import (
    EXPIRED_LATER,
    NOT_EXPIRED,
    NOT_HELD,
    NOT_IN_PATH,
    NOT_REFUSED,
    NOT_SENT,
    OWN_IN_PATH,
    Kind,
)
from eventd.audit.segments.delivery_cells import sum_deliveries
from eventd.audit.segments.event_cells import sum_events
from eventd.audit.segments.link_rows import LinkRow, SelectionVersion
from eventd.audit.segments.plan import ClockOffset, LakePlan, NodeEpoch
from eventd.audit.segments.row_marks import PairKey, UnevenSlots, candidates, mark_deliveries, mark_events
from eventd.audit.verdicts import reconcile
from eventd.audit.verdicts.pair_figures import RowComparison
from eventd.audit.verdicts.refused_events import with_slots
from eventd.audit.verdicts.row_comparison import compare, group_uneven
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from tests.support.ledger_rows import TO_B, Row, columns_of, delivery_row, event_row, received_row

END = 1000 * SECOND
RELAYING = SelectionVersion('{"relay": true}')
BACK_TO_B = LinkRow("g", "b", (RELAYING,), settled=100)
B_TO_HUB = LinkRow("g", "hub", (RELAYING,), settled=100)


@dataclass
class Lake:
    """The ledgers of a federation: `a` emits events for `b`, which relays them to a hub, which has a link back to `b`.

    The hub sends none back, because `b` is in their path.
    """

    rows: dict[tuple[Ledger, str], list[Row]] = field(default_factory=dict)
    links: Mapping[str, Sequence[LinkRow]] = field(
        default_factory=lambda: {"a": [TO_B], "b": [B_TO_HUB], "hub": [BACK_TO_B]}
    )
    keeping: Sequence[str] = ("a", "b", "hub")
    slots: UnevenSlots = field(default_factory=dict)

    def add(self, ledger: Ledger, node: str, *rows: Row) -> None:
        self.rows.setdefault((ledger, node), []).extend(row | {"node": node} for row in rows)

    def uneven(self) -> dict[tuple[str, str], list[int]]:
        """Return the slots that are compared row by row, by source and peer."""
        made = []
        for at, ((ledger, node), rows) in enumerate(self.rows.items()):
            columns = columns_of(ledger, rows)
            if ledger is Ledger.EVENTS:
                made.append(sum_events(str(at), columns, self.links.get(node, ())))
            else:
                made.append(sum_deliveries(str(at), columns, {}))
        cells = pa.concat_tables(made).unify_dictionaries().drop_columns(["segment"])
        self.slots = group_uneven([reconcile.reconcile(cells, dict.fromkeys(self.keeping, END))["uneven"]])
        return {(pair.source, pair.peer): slots.tolist() for pair, slots in self.slots.items()}

    def compare(self, coverage: Coverage | None = None) -> RowComparison:
        """Compare the rows of these slots, by ledgers that are complete up to the end unless a coverage is given."""
        marks: list[pa.Table] = []
        known = coverage or Coverage(LakePlan(), until=dict.fromkeys(self.keeping, END))
        self.uneven()
        self.slots = with_slots(self.slots, {row: (PairKey(row.group, "a", row.peer), 0) for row in known.unanswered})
        for (ledger, node), rows in self.rows.items():
            columns = columns_of(ledger, [rows[at] for at in candidates(columns_of(ledger, rows), self.slots)])
            if ledger is Ledger.EVENTS:
                marks += mark_events(columns, self.links.get(node, ()), self.slots)
            else:
                marks += mark_deliveries(columns)
        return RowComparison.from_tables({name: [one] for name, one in compare(pa.concat_tables(marks), known).items()})


def details(comparison: RowComparison) -> list[tuple[str, str, str]]:
    return [(one.discrepancy.peer, one.discrepancy.id, one.discrepancy.detail) for one in comparison.located]


def relayed(*numbers: int, sent_to_b: Sequence[int] = ()) -> Lake:
    """Return the lake of some events: `a` delivered those in `sent_to_b` to `b`, by default all."""
    lake = Lake()
    for number in numbers:
        lake.add(Ledger.EVENTS, "a", event_row(number))
        lake.add(Ledger.EVENTS, "hub", received_row(number, path="a,b"))
        lake.add(Ledger.DELIVERIES, "hub", delivery_row(number, outcome="in_path", done_at=9))
        if number in (sent_to_b or numbers):
            lake.add(Ledger.DELIVERIES, "a", delivery_row(number))
            lake.add(Ledger.EVENTS, "b", received_row(number))
            lake.add(Ledger.DELIVERIES, "b", delivery_row(number, peer="hub"))
    return lake


def test_events_that_the_peer_holds_need_no_comparison_of_rows_if_a_relay_does_not_send_them_back() -> None:
    assert relayed(1, 2, 3).uneven() == {}


def test_nor_do_events_that_the_peer_itself_delivered_to_the_relay_if_the_peer_holds_more() -> None:
    lake = relayed(1, 2)
    lake.add(Ledger.EVENTS, "a", event_row(3, type="u"))
    lake.add(Ledger.DELIVERIES, "a", delivery_row(3, type="u"))
    lake.add(Ledger.EVENTS, "b", received_row(3, type="u"))
    narrow = LinkRow("g", "hub", (SelectionVersion('{"relay": true, "types": ["t"]}'),), settled=100)
    lake.links = {**lake.links, "b": [narrow]}
    assert lake.uneven() == {}


def test_nor_do_events_that_came_to_the_relay_over_a_third_node() -> None:
    lake = Lake()
    for number in (1, 2):
        lake.add(Ledger.EVENTS, "a", event_row(number))
        lake.add(Ledger.DELIVERIES, "a", delivery_row(number))
        lake.add(Ledger.EVENTS, "b", received_row(number))
        lake.add(Ledger.DELIVERIES, "b", delivery_row(number, peer="c"))
        lake.add(Ledger.EVENTS, "c", received_row(number))
        lake.add(Ledger.DELIVERIES, "c", delivery_row(number, peer="hub"))
        lake.add(Ledger.EVENTS, "hub", received_row(number))
        lake.add(Ledger.DELIVERIES, "hub", delivery_row(number, outcome="in_path"))
    to_c = LinkRow("g", "c", (RELAYING,), settled=100)
    lake.links = {"a": [TO_B], "b": [to_c], "c": [B_TO_HUB], "hub": [BACK_TO_B]}
    lake.keeping = ("a", "b", "c", "hub")
    assert lake.uneven() == {}


def test_an_event_that_a_relay_says_came_through_the_peer_is_in_dispute_if_the_peer_does_not_hold_it() -> None:
    lake = relayed(1, 2, 3, sent_to_b=[1, 3])
    lake.links = {"a": (), "b": [B_TO_HUB], "hub": [BACK_TO_B]}  # the hub has them from `a` by another way
    lake.rows.pop((Ledger.DELIVERIES, "a"))
    found = lake.compare()
    assert details(found) == [("b", "e2", NOT_IN_PATH)]
    (change,) = found.changes.values()
    assert (change["in_path"], change["disputed"]) == (-1, 1)


def test_only_the_event_that_the_peer_lacks_is_judged() -> None:
    lake = relayed(1, 2, 3, sent_to_b=[1, 3])
    lake.add(Ledger.DELIVERIES, "a", delivery_row(2))
    lake.add(Ledger.DELIVERIES, "b", delivery_row(2, peer="hub"))
    found = lake.compare()
    assert found.compared == 2, "of e2 at both peers"
    assert details(found) == [("b", "e2", NOT_HELD)]


def erased_at_sender() -> Lake:
    """Return the lake of three events, of which `a` has lost its delivery of the second one."""
    lake = relayed(1, 2, 3)
    rows = lake.rows[Ledger.DELIVERIES, "a"]
    lake.rows[Ledger.DELIVERIES, "a"] = [row for row in rows if row["id"] != "e2"]
    return lake


@pytest.mark.parametrize("settled", [100, 0])
def test_a_delivery_that_the_sender_erased_is_in_dispute_also_if_a_relay_has_a_link_back_to_the_peer(
    settled: int,
) -> None:
    """The relay's reason is not one of the sender, and it makes no difference whether its link has got so far."""
    lake = erased_at_sender()
    lake.links = {**lake.links, "hub": [BACK_TO_B._replace(settled=settled)]}
    if not settled:
        lake.rows.pop((Ledger.DELIVERIES, "hub"))
    found = lake.compare()
    assert details(found) == [("b", "e2", NOT_SENT)]
    assert found.located[0].discrepancy.evidence.sender == "a"


def test_the_reason_of_another_sender_counts_where_the_ledger_of_the_silent_one_may_lack_the_row() -> None:
    known = Coverage(LakePlan(), until=dict.fromkeys(("a", "b", "hub"), END))
    known.blind_spots["a", Ledger.DELIVERIES].append(BlindSpot(why="damaged"))
    assert outcome(erased_at_sender(), known) == "in_path"


@pytest.mark.parametrize("reason", ["expired", "refused"])
def test_an_event_that_one_sender_gave_up_is_missing_if_another_one_has_no_reason(reason: str) -> None:
    lake = Lake()
    lake.add(Ledger.EVENTS, "a", event_row(1, expires_at=8))
    lake.add(Ledger.EVENTS, "hub", received_row(1, expires_at=8))
    lake.add(Ledger.DELIVERIES, "hub", delivery_row(1, outcome=reason, done_at=9))
    assert [(one.discrepancy.kind, one.discrepancy.id) for one in lake.compare().located] == [(Kind.MISSING, "e1")]
    lake.add(Ledger.DELIVERIES, "a", delivery_row(1, outcome="expired", done_at=9))
    assert lake.compare().located == []


def refused_at_a(later: str) -> Lake:
    """Return the lake of an event that `a` notes as refused, and the hub later as `later`."""
    lake = Lake()
    lake.add(Ledger.EVENTS, "a", event_row(1, expires_at=8))
    lake.add(Ledger.EVENTS, "hub", received_row(1, expires_at=8))
    lake.add(Ledger.DELIVERIES, "a", delivery_row(1, outcome="refused", done_at=9, batch_id="feigned"))
    lake.add(Ledger.DELIVERIES, "hub", delivery_row(1, outcome=later, attempt_at=20, done_at=20))
    return lake


def unanswered(*refused: RefusedRow) -> Coverage:
    return Coverage(LakePlan(), until=dict.fromkeys(("a", "b", "hub"), END), unanswered=frozenset(refused))


REFUSED = RefusedRow(NodeEpoch("a", ""), "g", "b", 1)


@pytest.mark.parametrize("later", ["expired", "in_path"])
def test_a_refusal_without_an_answer_is_in_dispute_whatever_another_sender_did_later(later: str) -> None:
    lake = refused_at_a(later)
    if later == "in_path":
        lake.add(Ledger.EVENTS, "b", received_row(1, expires_at=8))
        lake.add(Ledger.DELIVERIES, "b", delivery_row(1, peer="hub"))
    found = lake.compare(unanswered(REFUSED))
    assert details(found) == [("b", "e1", NOT_REFUSED)]
    evidence = found.located[0].discrepancy.evidence
    assert (evidence.sender, evidence.batch) == ("a", "feigned")


def test_a_refusal_counts_if_the_answer_to_one_of_several_senders_counts_it() -> None:
    lake = refused_at_a("refused")
    of_hub = REFUSED._replace(owner=NodeEpoch("hub", ""))
    assert details(lake.compare(unanswered(REFUSED))) == []
    assert details(lake.compare(unanswered(REFUSED, of_hub))) == [("b", "e1", NOT_REFUSED)]


def test_only_the_refusal_at_the_position_of_the_link_is_in_dispute() -> None:
    others = REFUSED._replace(group="h"), REFUSED._replace(peer="hub"), REFUSED._replace(position=2)
    assert details(refused_at_a("expired").compare(unanswered(*others))) == []


def test_the_claim_counts_for_a_peer_without_ledgers() -> None:
    lake = relayed(1)
    lake.rows = {key: rows for key, rows in lake.rows.items() if key[1] != "b"}
    lake.keeping = ("a", "hub")
    assert ("a", "b") not in lake.uneven()
    assert [one for one in details(lake.compare()) if one[0] == "b"] == []


@pytest.mark.parametrize("keeping", [("a", "b"), ("a",)])
def test_an_event_cannot_have_come_to_its_own_source_through_a_peer(keeping: tuple[str, ...]) -> None:
    lake = Lake(keeping=keeping)
    lake.add(Ledger.EVENTS, "a", event_row(1))
    lake.add(Ledger.DELIVERIES, "a", delivery_row(1, outcome="in_path"))
    assert details(lake.compare()) == [("b", "e1", OWN_IN_PATH)]


def unheld() -> Lake:
    lake = Lake(links={"hub": [BACK_TO_B]})
    lake.add(Ledger.EVENTS, "a", event_row(1))
    lake.add(Ledger.EVENTS, "hub", received_row(1))
    lake.add(Ledger.DELIVERIES, "hub", delivery_row(1, outcome="in_path", done_at=20 * SECOND))
    return lake


def outcome(lake: Lake, coverage: Coverage) -> str:
    """Return how the only event counts, of which there must be no finding."""
    found = lake.compare(coverage)
    assert found.located == []
    return next((name for change in found.changes.values() for name, n in change.items() if n > 0), "in_path")


def test_a_claim_is_not_refuted_where_the_ledger_of_the_peer_may_lack_the_row() -> None:
    until = dict.fromkeys(("a", "b", "hub"), END)
    damaged = Coverage(LakePlan(), until=until)
    damaged.blind_spots["b", Ledger.EVENTS].append(BlindSpot(why="damaged"))
    assert outcome(unheld(), damaged) == "unproven"
    removed = Coverage(LakePlan(), until=until)
    removed.blind_spots["b", Ledger.EVENTS].append(BlindSpot())
    assert outcome(unheld(), removed) == "in_path"
    early = Coverage(LakePlan(), until=until | {"b": 10 * SECOND})
    assert outcome(unheld(), early) == "in_path"
    hole = Hole("b", "e", "g", 1, 1, 1, 0, 9, (0, END))
    assert outcome(unheld(), Coverage(LakePlan(), until=until, holes={("b", "g"): [hole]})) == "unproven"


def test_the_time_of_a_claim_is_converted_by_the_clock_of_the_node_that_made_it() -> None:
    """The claim of the hub is later than that of the relay, whose row is the last one by the time of its attempt."""
    lake = unheld()
    lake.add(Ledger.EVENTS, "relay", received_row(1))
    claim = delivery_row(1, outcome="in_path", attempt_at=30 * SECOND, done_at=10 * SECOND)
    lake.add(Ledger.DELIVERIES, "relay", claim)
    lake.links = {"hub": [BACK_TO_B], "relay": [BACK_TO_B]}
    ahead, even = ClockOffset(0, END, END), ClockOffset(0, 0, 0)
    until = dict.fromkeys(("a", "b", "hub", "relay"), END)
    late = Coverage(LakePlan(clocks={("hub", "b"): [ahead], ("relay", "b"): [even]}), until=until)
    assert outcome(lake, late) == "in_path"
    early = Coverage(LakePlan(clocks={("hub", "b"): [even], ("relay", "b"): [ahead]}), until=until)
    assert details(lake.compare(early)) == [("b", "e1", NOT_IN_PATH)]


def given_up(done_at: int, expires_at: int | None) -> Lake:
    lake = Lake()
    lake.add(Ledger.EVENTS, "a", event_row(1, expires_at=expires_at))
    lake.add(Ledger.DELIVERIES, "a", delivery_row(1, outcome="expired", done_at=done_at))
    return lake


def test_an_event_that_has_expired_needs_no_comparison_of_rows() -> None:
    lake = given_up(20 * SECOND, 19 * SECOND)
    lake.add(Ledger.EVENTS, "a", event_row(2, expires_at=20 * SECOND))
    lake.add(Ledger.DELIVERIES, "a", delivery_row(2, outcome="expired", done_at=21 * SECOND))
    assert lake.uneven() == {}


@pytest.mark.parametrize(
    ("expires_at", "detail"), [(None, NOT_EXPIRED), (22 * SECOND, EXPIRED_LATER), (10**15, EXPIRED_LATER)]
)
def test_an_event_given_up_before_its_expiry_is_in_dispute_also_if_nothing_else_is_in_its_minute(
    expires_at: int | None, detail: str
) -> None:
    found = given_up(20 * SECOND, expires_at).compare()
    assert details(found) == [("b", "e1", detail)]
    (change,) = found.changes.values()
    assert (change["expired"], change["disputed"]) == (-1, 1)


def test_an_event_given_up_a_little_too_early_is_not_because_a_clock_may_have_been_set_back() -> None:
    assert details(given_up(20 * SECOND, 21 * SECOND).compare()) == []


@pytest.mark.parametrize(
    ("clocks", "early", "found"),
    [
        pytest.param({("a", "b"): [3600, 3600]}, 30, [("b", "e1", EXPIRED_LATER)], id="the clocks of two nodes differ"),
        pytest.param({("hub", "b"): [0, 60]}, 30, [("b", "e1", EXPIRED_LATER)], id="the clock of another node was set"),
        pytest.param({("a", "b"): [3600, 3660], ("a", "hub"): [7]}, 30, [], id="the clock of the sender was set"),
        pytest.param({("a", "b"): [0, 60]}, 62, [("b", "e1", EXPIRED_LATER)], id="the clock was set by less"),
    ],
)
def test_only_a_change_of_the_clock_of_the_sender_excuses_an_event_given_up_too_early(
    clocks: dict[tuple[str, str], list[int]], early: int, found: list[tuple[str, str, str]]
) -> None:
    """A sender compares the expiry with its own clock, which also gives its row the time."""
    offsets = {
        pair: [ClockOffset(hour, at * SECOND, at * SECOND) for hour, at in enumerate(ahead)]
        for pair, ahead in clocks.items()
    }
    known = Coverage(LakePlan(clocks=offsets), until=dict.fromkeys(("a", "b", "hub"), END))
    assert details(given_up(100 * SECOND, (100 + early) * SECOND).compare(known)) == found
