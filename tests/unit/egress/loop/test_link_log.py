"""When a link logs the events that it has lost."""

from __future__ import annotations

import logging

import pytest

from eventd.egress.loop.link_log import LossLog
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
