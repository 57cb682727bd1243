"""Nodes whose ledger ends before the end of the audited period, and what the report says of them."""

from __future__ import annotations

from msgspec.structs import replace

from eventd.audit.engine.silence import PATIENCE, find_silences, limitation_of
from eventd.lake.manifest import LakeHead, NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND

NOON = 1_795_176_000 * SECOND
"""2026-11-20T12:00:00Z."""
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def state(node: str = "site-a", *, as_of: int = NOON, lag: int = 10 * SECOND, **more: int) -> NodeState:
    """A node that reported at `as_of`; what is recorded is in the lake but for the last `lag`."""
    began, covered = more.pop("began_at", NOON - 24 * HOUR), more.pop("complete_until", as_of - lag)
    return NodeState(
        node=node, epoch="e", instance="i", began_at=began, as_of=as_of, head=1, complete_until=covered, **more
    )


def silences(*states: NodeState, now: int = NOON, until: int | None = None) -> dict[str, str]:
    survey = Survey(LakeHead(id="l", made_at=0), states, (), ())
    return {name: one.words for name, one in find_silences(survey, now=now, until=until).items()}


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


def test_a_clock_that_is_ahead_hides_no_end() -> None:
    found = silences(state(as_of=NOON + 24 * HOUR))
    assert found == {"site-a": "ahead by 1 d: with that clock its silence would not be noticed"}


def test_a_node_that_was_closed_is_asked_nothing_more() -> None:
    assert silences(state(as_of=NOON - 24 * HOUR, closed_at=NOON)) == {}


def test_the_latest_epoch_speaks_for_the_node() -> None:
    old = replace(state(as_of=NOON - 30 * HOUR, began_at=NOON - 40 * HOUR), epoch="old")
    assert silences(state(), old) == {}


def test_each_is_a_trouble_that_says_what_to_do() -> None:
    survey = Survey(LakeHead(id="l", made_at=0), [state("dead", as_of=NOON - HOUR), state("slow", lag=HOUR)], (), ())
    troubles = [limitation_of(one) for one in find_silences(survey, now=NOON, until=None).values()]
    assert [(one.kind, one.where) for one in troubles] == [("silent", "dead"), ("behind", "slow")]
    assert "routerctl lake close --node NODE" in troubles[0].hint
