"""Checks of what an adversary has sent: it has no effect, and no success is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.simulation.checks.violation import Violation
from eventd.simulation.faults.adversary import REPLAY, ReplayedRequest
from eventd.simulation.world.journal import Asked, Journal

_BUSY: Final = 503
_V1: Final = "/v1/"
"""The beginning of paths at which some requests of an adversary are retries."""
_RETRIES: Final = ("again", "to another node")
"""What is a retry by v1, which has no nonces and names no receiver."""


def replay_violations(journal: Journal, begin: float) -> Iterator[Violation]:
    """V17: a changed request, or one that its receiver has answered before, is refused."""
    for asked in journal.of(REPLAY):
        replay: ReplayedRequest = asked.question
        is_retry = replay.path.startswith(_V1) and replay.mode in _RETRIES
        if is_retry or (replay.mode == "again" and not _is_known(journal, asked, replay)):
            continue
        is_silent = not asked.status and _is_up(journal, asked)
        if is_silent or 200 <= asked.status < 400 or (asked.status >= 500 and asked.status != _BUSY):
            how = "not answered" if is_silent else f"answered with {asked.status}"
            detail = f"{replay.path} was sent {replay.mode}, and {how}"
            yield Violation("V17", asked.host, detail, asked.answered_at - begin)


def _is_known(journal: Journal, asked: Asked, replay: ReplayedRequest) -> bool:
    """Return whether the receiver has answered the request before, and no restore has taken that."""
    at = replay.was_answered_at
    taken = [
        each
        for each in journal.restores
        if each.host == asked.host and each.copied_at <= at <= each.restored_at <= asked.answered_at
    ]
    return bool(at) and not taken


def _is_up(journal: Journal, asked: Asked) -> bool:
    """Return whether the node was ready all the time from the question on, and nothing happened to it."""
    own = [(at, what) for at, what, host in journal.changes if host == asked.host and at <= asked.answered_at]
    states = [what for _, what in own if what not in ("freeze", "thaw")]  # a node that is thawed may be about to stop
    is_ready = states[-1:] == ["ready"] and own[-1][1] != "freeze"
    return is_ready and own[-1][0] <= asked.asked_at
