"""The lines that a subscriber's deliveries leave in the log."""

from __future__ import annotations

import logging

import pytest

from eventd.egress.callbacks.subscriber_log import SubscriberLog


def test_each_delivery_is_logged_and_of_equal_failures_in_a_row_the_first(caplog: pytest.LogCaptureFixture) -> None:
    log = SubscriberLog("app--1")
    with caplog.at_level(logging.INFO, "eventd.callbacks"):
        log.note_failure(2, "http_503", "answered 503")
        log.note_failure(2, "http_503", "answered 503 again")
        log.note_failure(2, "timeout", "no answer")
        log.note_delivery(2)
        log.note_delivery(1)
        log.note_failure(1, "timeout", "no answer")
    assert [(one.levelname, vars(one)["detail"], vars(one).get("reason")) for one in caplog.records] == [
        ("WARNING", "failed to deliver 2 events to 'app--1'", "http_503"),
        ("WARNING", "failed to deliver 2 events to 'app--1'", "timeout"),
        ("INFO", "delivered 2 events to 'app--1'", None),
        ("INFO", "delivered 1 events to 'app--1'", None),
        ("WARNING", "failed to deliver 1 events to 'app--1'", "timeout"),
    ]
    assert {vars(one)["subscriber"] for one in caplog.records} == {"app--1"}
