"""The checks of an adversary: a request that is known, or was changed, must be refused."""

from __future__ import annotations

import pytest

from eventd.simulation.checks.replays import replay_violations
from eventd.simulation.faults.adversary import REPLAY, ReplayedRequest
from eventd.simulation.world.journal import Asked, Journal, Restore


def journal(mode: str, status: int, *, was_answered_at: float = 1.0) -> Journal:
    replay = ReplayedRequest(mode, "/v2/events", was_answered_at)
    return Journal([Asked(REPLAY, "b", 5.0, 5.1, status, replay, None)])


@pytest.mark.parametrize(
    ("mode", "status"), [("again", 409), ("cut", 400), ("to another node", 401), ("again", 0), ("cut", 503)]
)
def test_a_refused_request_violates_nothing(mode: str, status: int) -> None:
    assert [*replay_violations(journal(mode, status), 0.0)] == []


@pytest.mark.parametrize(("mode", "status"), [("again", 200), ("cut", 200), ("in another group", 500)])
def test_a_request_that_is_not_refused_is_named(mode: str, status: int) -> None:
    assert [each.invariant for each in replay_violations(journal(mode, status), 0.0)] == ["V17"]


def test_a_node_that_is_up_answers() -> None:
    known = journal("cut", 0)
    known.changes.append((1.0, "ready", "b"))
    assert [each.invariant for each in replay_violations(known, 0.0)] == ["V17"]
    known.changes.append((5.05, "kill", "b"))
    assert [*replay_violations(known, 0.0)] == []


@pytest.mark.parametrize(
    ("changes", "is_up"),
    [("ready", True), ("ready freeze", False), ("ready freeze thaw", True), ("ready stop freeze thaw", False)],
)
def test_only_a_node_that_is_ready_and_not_frozen_has_to_answer(changes: str, is_up: bool) -> None:
    known = journal("cut", 0)
    known.changes += [(1.0 + number, what, "b") for number, what in enumerate(changes.split())]
    assert bool([*replay_violations(known, 0.0)]) == is_up


@pytest.mark.parametrize(("mode", "is_retry"), [("again", True), ("to another node", True), ("cut", False)])
def test_by_v1_a_request_that_is_sent_again_is_a_retry(mode: str, is_retry: bool) -> None:
    asked = Asked(REPLAY, "b", 5.0, 5.1, 200, ReplayedRequest(mode, "/v1/events", 1.0), None)
    assert ([*replay_violations(Journal([asked]), 0.0)] == []) == is_retry


@pytest.mark.parametrize(("copied_at", "restored_at"), [(1.5, 3.0), (0.5, 0.9), (0.5, 6.0)])
def test_a_restore_that_has_not_taken_an_answer_excuses_nothing(copied_at: float, restored_at: float) -> None:
    known = journal("again", 200)
    known.restores.append(Restore("b", copied_at, restored_at))
    assert [each.invariant for each in replay_violations(known, 0.0)] == ["V17"]


def test_a_request_that_its_receiver_had_not_answered_may_have_its_effect() -> None:
    assert [*replay_violations(journal("again", 200, was_answered_at=0.0), 0.0)] == []


def test_a_restored_node_may_have_lost_that_it_had_answered() -> None:
    known = journal("again", 200)
    known.restores.append(Restore("b", copied_at=0.5, restored_at=3.0))
    assert [*replay_violations(known, 0.0)] == []
