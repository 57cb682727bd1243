"""Nodes whose ledger ends before the audited period, or before others last heard from them; and wrong clocks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eventd.audit.coverage.clock_shifts import clock_shifts
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.mentions import find_mentions
from eventd.audit.coverage.silence import PATIENCE, Mention, find_silences, limitation_of
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.ledger_summaries import KeyRequests, LedgerSummary
from eventd.audit.segments.plan import ClockOffset, ClockOffsets, LakePlan, NodeEpoch
from eventd.audit.segments.row_marks import PairKey
from eventd.lake.manifest import LakeHead, NodeState, SegmentRange
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from tests.support.batch_tables import segment_of

NOON = 1_795_176_000 * SECOND
"""2026-11-20T12:00:00Z."""
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def state(node: str = "site-a", *, as_of: int = NOON, lag: int = 10 * SECOND, **more: Any) -> NodeState:
    """A node that reported at `as_of`; what is recorded is in the lake but for the last `lag`."""
    began, covered = more.pop("began_at", NOON - 24 * HOUR), more.pop("complete_until", as_of - lag)
    return NodeState(
        node=node, epoch="e", instance="i", began_at=began, as_of=as_of, head=1, complete_until=covered, **more
    )


def lake(*states: NodeState) -> Survey:
    return Survey(LakeHead(id="l", made_at=0), states, (), ())


def silences(
    *states: NodeState, now: int = NOON, until: int | None = None, clocks: ClockOffsets | None = None, **known: Any
) -> dict[str, str]:
    known["shifts"] = clock_shifts(lake(*states), clocks or {}, now, PATIENCE)
    return {name: one.words for name, one in find_silences(lake(*states), now=now, until=until, **known).items()}


def measured(ahead: int, at: int = NOON) -> dict[tuple[str, str], list[ClockOffset]]:
    """The clock of `site-b` as the receipts of `site-a` show it, and the other way round."""
    hour = at // HOUR
    return {
        ("site-a", "site-b"): [ClockOffset(hour, ahead - SECOND, ahead + SECOND)],
        ("site-b", "site-a"): [ClockOffset((at + ahead) // HOUR, -ahead - SECOND, SECOND - ahead)],
    }


def test_a_node_that_reports_is_not_silent_however_little_it_ships() -> None:
    assert silences(state(), state("idle", as_of=NOON - MINUTE)) == {}


def test_a_node_that_stopped_is_silent_since_its_last_report() -> None:
    found = silences(state(), state("dead", as_of=NOON - 3 * HOUR))
    assert found == {
        "dead": "silent since 2026-11-20 09:00:00 UTC (3 h): its ledger ends at 2026-11-20 08:59:50 UTC",
    }
    assert silences(state(as_of=NOON - PATIENCE)) == {}


def test_a_lake_in_which_all_are_silent_is_no_exception() -> None:
    assert set(silences(state("one", as_of=NOON - HOUR), state("two", as_of=NOON - HOUR))) == {"one", "two"}


def test_what_was_asked_for_may_end_before_the_silence() -> None:
    dead = state(as_of=NOON - 3 * HOUR)
    assert silences(dead, until=NOON - 4 * HOUR) == {}
    assert set(silences(dead, until=NOON - 2 * HOUR)) == {"site-a"}
    assert silences(state(), until=NOON + HOUR) == {}, "the future is unknown"


def test_a_node_that_reports_and_does_not_get_on_is_behind() -> None:
    assert silences(state(lag=HOUR)) == {"site-a": "behind: it reports, but its ledger ends at 2026-11-20 11:00:00 UTC"}
    assert silences(state(complete_until=0)) == {
        "site-a": "behind: it reports, but its ledgers were never completely shipped to the lake"
    }


def test_a_node_that_looks_seldom_has_longer() -> None:
    seldom = state(as_of=NOON - 2 * HOUR, interval=HOUR)
    assert silences(seldom) == {}
    assert set(silences(replace(seldom, as_of=NOON - 4 * HOUR, complete_until=NOON - 5 * HOUR))) == {"site-a"}


def test_an_interval_is_believed_up_to_a_day_and_excuses_no_clock() -> None:
    day = 24 * HOUR
    seldom = state(as_of=NOON - 60 * HOUR, began_at=NOON - 90 * HOUR, interval=day)
    assert silences(seldom) == {}
    found = silences(replace(seldom, interval=100 * day))
    assert found == {
        "site-a": "not to be trusted: its state of 2026-11-18 00:00:00 UTC says that it looks for rows every 100 days, "
        "and at most one is allowed"
    }
    assert {*silences(state(as_of=NOON + HOUR, interval=day))} == {"site-a"}


def test_a_state_is_not_older_than_its_epoch_its_rows_or_its_end() -> None:
    assert "its epoch began later" in silences(state(began_at=NOON + 1))["site-a"]
    assert "was closed at 1970-01-01T00:00:00" in silences(state(closed_at=1))["site-a"]
    assert "was closed at 2026-11-30" in silences(state(closed_at=NOON + 240 * HOUR))["site-a"]
    earlier = replace(state(as_of=NOON - 30 * HOUR, began_at=NOON - 40 * HOUR), epoch="old")
    assert {*silences(state(), replace(earlier, complete_until=NOON))} == {"site-a"}


@pytest.mark.parametrize("upto", [8, 9])
def test_the_rows_that_a_state_promises_are_not_later_than_the_state(upto: int) -> None:
    """Rows with later numbers may have been shipped since."""
    promising = replace(state(), segments={Ledger.EVENTS: SegmentRange(after=0, upto=upto)})
    rows = segment_of("site-a", Ledger.EVENTS, 9, (NOON, NOON + 3 * MINUTE))
    survey = lake(promising)._replace(segments=[rows])
    kinds = [one.kind for one in find_silences(survey, now=NOON, until=None).values()]
    assert kinds == ([] if upto == 8 else ["state"])
    set_back = find_silences(survey, now=NOON, until=None, clock_change=lambda node: MINUTE)
    assert set_back == {}


def test_a_row_of_the_future_is_named_and_no_silence_by_the_clock_that_it_suggests() -> None:
    promising = state(as_of=NOON - HOUR, segments={Ledger.EVENTS: SegmentRange(after=0, upto=9)})
    survey = lake(promising)._replace(segments=[segment_of("site-a", Ledger.EVENTS, 9, (NOON, NOON + 24 * HOUR))])
    (found,) = find_silences(survey, now=NOON, until=None).values()
    assert (found.kind, found.fault) == ("state", "promises a later row, of 2026-11-21 12:00:00 UTC")


def test_a_clock_that_is_ahead_hides_no_end() -> None:
    found = silences(state(as_of=NOON + 24 * HOUR))
    assert found == {"site-a": "ahead by 1 d: with that clock its silence would not be noticed"}


def test_a_node_that_was_closed_is_asked_nothing_more() -> None:
    assert silences(state(as_of=NOON - 24 * HOUR, closed_at=NOON)) == {}


def test_the_latest_epoch_speaks_for_the_node() -> None:
    old = replace(state(as_of=NOON - 30 * HOUR, began_at=NOON - 40 * HOUR), epoch="old")
    assert silences(state(), old) == {}


def test_each_is_a_trouble_that_says_what_to_do() -> None:
    survey = lake(state("dead", as_of=NOON - HOUR), state("slow", lag=HOUR))
    troubles = [limitation_of(one, "/srv/a lake") for one in find_silences(survey, now=NOON, until=None).values()]
    assert [(one.kind, one.where) for one in troubles] == [("silent", "dead"), ("behind", "slow")]
    assert "`routerctl lake close --lake '/srv/a lake' --node dead`" in troubles[0].hint


def test_the_command_to_close_a_node_shows_an_address_in_full_or_not_at_all() -> None:
    [silence] = find_silences(lake(state("dead", as_of=NOON - HOUR)), now=NOON, until=None).values()
    hint = limitation_of(silence, "s3://user:hush@bucket/lake").hint
    assert "`routerctl lake close --node dead` with the address of the lake in EVENTD_LAKE" in hint
    assert (
        "`routerctl lake close --lake s3://bucket/lake --node dead`" in limitation_of(silence, "s3://bucket/lake").hint
    )


def test_a_closed_node_must_have_shipped_all_that_others_know_of_it() -> None:
    closed = state(as_of=NOON - 24 * HOUR, closed_at=NOON)
    end = closed.complete_until
    assert silences(closed, mentions={"site-a": Mention(end - 1, "site-b", "acknowledged")}) == {}
    found = silences(closed, mentions={"site-a": Mention(end + 5 * SECOND, "site-b", "acknowledged")})
    assert found == {
        "site-a": "behind: it is closed, but its ledger ends at 2026-11-19 11:59:50 UTC, "
        "before it acknowledged a batch of site-b at 2026-11-19 11:59:55 UTC"
    }


def test_a_node_in_service_may_ship_later_than_its_peers_but_not_for_longer_than_the_patience() -> None:
    late = state(as_of=NOON - 3 * HOUR, lag=10 * SECOND)
    ends = {"now": NOON, "until": NOON - 4 * HOUR}
    assert silences(late, **ends, mentions={"site-a": Mention(late.complete_until + PATIENCE, "site-b", "sent")}) == {}
    found = silences(late, **ends, mentions={"site-a": Mention(NOON - HOUR, "site-b", "sent")})
    assert found["site-a"].endswith("before it sent a batch to site-b at 2026-11-20 11:00:00 UTC")


def test_a_clock_that_is_behind_makes_no_silence_if_receipts_show_its_error() -> None:
    wrong = state("site-b", as_of=NOON - 10 * HOUR)
    assert set(silences(state(), wrong)) == {"site-b"}
    assert silences(state(), wrong, clocks=measured(-10 * HOUR)) == {}


def test_a_clock_that_is_ahead_hides_no_silence_if_receipts_show_its_error() -> None:
    dead = state("site-b", as_of=NOON)  # by its clock; it stopped five hours ago
    assert silences(state(), dead) == {}
    found = silences(state(), dead, clocks=measured(5 * HOUR, at=NOON - 5 * HOUR))
    assert found == {
        "site-b": "silent since 2026-11-20 07:00:00 UTC (5 h): its ledger ends at 2026-11-20 06:59:50 UTC "
        "(its clock is 5 h ahead: these times are corrected)"
    }


def test_a_difference_of_clocks_that_was_measured_long_ago_counts_no_more() -> None:
    states = lake(state(), state("site-b"))
    old = measured(5 * HOUR, at=NOON - 72 * HOUR)
    assert clock_shifts(states, old, NOON, PATIENCE) == {}
    assert clock_shifts(states, measured(2 * SECOND), NOON, PATIENCE)["site-b"].correction == 2 * SECOND
    assert clock_shifts(states, measured(SECOND // 2), NOON, PATIENCE)["site-b"].correction == 0


def test_the_errors_of_clocks_add_up_over_a_hub() -> None:
    first, second = measured(HOUR), measured(HOUR)
    chain = first | {
        (one.replace("b", "c").replace("site-a", "site-b"), other.replace("b", "c").replace("site-a", "site-b")): hours
        for (one, other), hours in second.items()
    }
    states = lake(state(), state("site-b", as_of=NOON + HOUR), state("site-c", as_of=NOON + 2 * HOUR))
    found = clock_shifts(states, chain, NOON, PATIENCE)
    assert {name: one.ahead for name, one in found.items()} == {"site-a": 0, "site-b": HOUR, "site-c": 2 * HOUR}
    assert [found[name].error for name in ("site-a", "site-b", "site-c")] == [0, SECOND, 2 * SECOND]


def test_a_state_that_promises_the_future_proves_nothing() -> None:
    forged = state(as_of=NOON, complete_until=NOON + MINUTE)
    (words,) = silences(forged).values()
    assert words.startswith("not to be trusted: its state of 2026-11-20 12:00:00 UTC")
    assert set(silences(replace(forged, closed_at=NOON))) == {"site-a"}


def row(what: Measure, node: str, high: int, n: int = 0) -> dict[str, Any]:
    return {"what": what, "group": "g", "source": "site-a", "peer": "site-b", "node": node, "high": high, "n": n}


def test_the_last_mention_of_a_node_is_by_its_own_clock_and_the_earliest_it_can_be() -> None:
    known = Coverage(LakePlan(clocks=measured(HOUR)))
    rows = [row(Measure.SENT, "site-a", NOON, n=4), row(Measure.SENT, "hub", NOON)]  # the clock of the hub is unknown
    found = find_mentions(rows, {}, known)
    assert found.latest == {"site-b": Mention(NOON + HOUR - SECOND, "site-a", "acknowledged")}
    assert found.beyond[PairKey("g", "site-a", "site-b"), "site-a"] == 4


def test_an_event_that_another_node_relayed_is_no_mention_of_its_source() -> None:
    known, rows = Coverage(LakePlan(clocks=measured(0))), [row(Measure.HELD, "site-b", NOON)]
    relayed = {NodeEpoch("site-b", "e"): [LedgerSummary(keys=[KeyRequests("hub", "g", "k", "v2", 1, 0, NOON)])]}
    assert find_mentions(rows, relayed, known).latest == {}
    direct = {NodeEpoch("site-b", "e"): [LedgerSummary(keys=[KeyRequests("site-a", "g", "k", "v2", 1, 0, NOON - 9)])]}
    assert find_mentions(rows, direct, known).latest == {"site-a": Mention(NOON - 9 - SECOND, "site-b", "sent")}
    unknown = Coverage(LakePlan())
    assert find_mentions(rows, direct, unknown).latest == {"site-a": Mention(NOON - 9 - 15 * MINUTE, "site-b", "sent")}


def test_ledgers_that_contradict_each_other_about_a_clock_correct_nothing() -> None:
    false = {
        ends: [ClockOffset(one.hour, one.low, one.low - HOUR) for one in hours]
        for ends, hours in measured(HOUR).items()
    }
    assert clock_shifts(lake(state(), state("site-b", as_of=NOON + HOUR)), false, NOON, PATIENCE) == {}
