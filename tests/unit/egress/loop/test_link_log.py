"""When a link logs the events that it has lost."""

from __future__ import annotations

import logging

import pytest

from eventd.egress.loop.link_log import LossLog
from eventd.log.cursors.steps import GAP_PROTOCOL, DeliveredBatch
from eventd.testing import ManualClock

ABOUT = {"cursor": "peer:edge/b", "group": "edge", "peer": "b"}


def row(after: int, upto: int, *, protocol: str = GAP_PROTOCOL, receipt: str = "") -> DeliveredBatch:
    return DeliveredBatch(
        cursor="peer:edge/b",
        batch_id="",
        epoch="e",
        incarnation=0,
        after=after,
        upto=upto,
        events=0,
        bytes=0,
        selector_version=1,
        exceptions=(),
        picked=(),
        attempts=1,
        sent_at=1,
        acked_at=1,
        status=0,
        protocol=protocol,
        key_id="",
        receipt=receipt,
    )


def test_a_link_logs_its_losses_once_a_minute_and_counts_them_all(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    losses = LossLog(logging.getLogger("eventd.egress"), ABOUT, clock.monotonic)
    losses.note([row(1, 3), row(3, 9, protocol="v2")])
    losses.note([row(9, 10)])
    clock.advance(59)
    losses.note([row(12, 14)])
    clock.advance(1)
    losses.note([row(14, 20, protocol="v2")])
    losses.note([row(30, 35)])
    assert [(line.message, line.levelname, vars(line)["peer"], vars(line)["count"]) for line in caplog.records] == [
        ("events lost", "WARNING", "b", 2),
        ("events lost", "WARNING", "b", 1 + 2 + 5),
    ]


def test_a_callback_tells_of_its_losses_itself(caplog: pytest.LogCaptureFixture) -> None:
    losses = LossLog(logging.getLogger("eventd.egress"), ABOUT, ManualClock().monotonic)
    losses.note([row(1, 3, receipt='{"lost": {"count": 1}}')])
    assert caplog.records == []
