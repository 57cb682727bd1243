"""When a link logs its state, and the events that it has lost."""

from __future__ import annotations

import logging

import pytest

from eventd.egress.loop.link_log import LinkLog, LossLog
from eventd.log.cursors.cursors import LinkState
from eventd.testing import ManualClock

ABOUT = {"cursor": "peer:edge/b", "group": "edge", "peer": "b"}


def test_a_link_logs_its_losses_once_a_minute_and_counts_them_all(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    losses = LossLog(logging.getLogger("eventd.egress"), ABOUT, clock.monotonic)
    losses.note(2)
    losses.note(1)
    clock.advance(59)
    losses.note(2)
    clock.advance(1)
    losses.note(0)
    losses.note(5)
    assert [(line.message, line.levelname, vars(line)["peer"], vars(line)["count"]) for line in caplog.records] == [
        ("events lost", "WARNING", "b", 2),
        ("events lost", "WARNING", "b", 1 + 2 + 5),
    ]


def test_two_causes_that_alternate_are_logged_once_a_minute_each(caplog: pytest.LogCaptureFixture) -> None:
    """A peer is down, and the database cannot record it: each attempt meets both."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    link = LinkLog(logging.getLogger("eventd.egress"), ABOUT, clock.monotonic)

    def attempts(seconds: int) -> list[tuple[str, str]]:
        caplog.clear()
        for _ in range(seconds):
            link.note(LinkState.BACKING_OFF, "unreachable", "cannot connect")
            link.note(LinkState.FAILED, "database", "disk full")
            clock.advance(1)
        return [(line.message, vars(line).get("reason", "")) for line in caplog.records]

    both = [("link backing off", "unreachable"), ("link failed", "database")]
    assert (attempts(60), attempts(60)) == (both, both)
    link.note(LinkState.RUNNING)
    assert caplog.messages[-1] == "link recovered"
    assert attempts(2) == both, "what fails after it has recovered is new"


def test_the_last_line_of_a_link_that_stays_in_a_state_names_that_state(caplog: pytest.LogCaptureFixture) -> None:
    """Its peer is down; for one attempt, the database could not record that."""
    clock = ManualClock()
    link = LinkLog(logging.getLogger("eventd.egress"), ABOUT, clock.monotonic)
    link.note(LinkState.BACKING_OFF, "unreachable", "cannot connect")
    link.note(LinkState.FAILED, "database", "disk full")
    for _ in range(120):
        link.note(LinkState.BACKING_OFF, "unreachable", "cannot connect")
        clock.advance(1)
    assert caplog.messages == ["link backing off", "link failed", "link backing off"]
