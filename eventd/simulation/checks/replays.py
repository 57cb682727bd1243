"""Checks of what an adversary has sent: it has no effect, and no success is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.simulation.checks.violation import Violation
from eventd.simulation.faults.adversary import REPLAY, ReplayedRequest
from eventd.simulation.world.journal import Asked, Journal

_BUSY: Final = 503


def replay_violations(journal: Journal, begin: float) -> Iterator[Violation]:
    """V17: a changed request, or one that its receiver has answered before, is refused."""
    for asked in journal.of(REPLAY):
        replay: ReplayedRequest = asked.question
        if replay.mode == "again" and not _is_known(journal, asked, replay):
            continue
        if 200 <= asked.status < 400 or (asked.status >= 500 and asked.status != _BUSY):
            detail = f"{replay.path} was sent {replay.mode}, and answered with {asked.status}"
            yield Violation("V17", asked.host, detail, asked.answered_at - begin)


def _is_known(journal: Journal, asked: Asked, replay: ReplayedRequest) -> bool:
    """Return whether the receiver has answered the request before, and no restore has taken that."""
    since = [
        each for each in journal.restores if each.host == asked.host and each.restored_at >= replay.was_answered_at
    ]
    return bool(replay.was_answered_at) and not since
