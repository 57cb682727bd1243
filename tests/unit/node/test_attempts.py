"""Rounds of chores: one that fails is logged, once a minute for each job and reason."""

from __future__ import annotations

import logging

import pytest

from eventd.errors import Unavailable
from eventd.node.attempts import Attempts
from eventd.runtime.log_pause import LOG_SECONDS
from eventd.testing import ManualClock


async def _fail(error: Exception) -> None:
    raise error


async def test_a_chore_that_keeps_failing_is_logged_once_a_minute_for_each_job_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    attempts = Attempts(clock.monotonic)

    async def fail_often() -> list[tuple[str, str]]:
        caplog.clear()
        for _ in range(3):
            assert not await attempts.make("checkpoint", _fail(Unavailable("full")))
            assert not await attempts.make("metrics", _fail(Unavailable("full")))
            assert not await attempts.make("metrics", _fail(ZeroDivisionError()))
        return [(record.levelname, vars(record)["job"]) for record in caplog.records]

    with caplog.at_level(logging.INFO, "eventd.housekeeping"):
        failures = [("WARNING", "checkpoint"), ("WARNING", "metrics"), ("ERROR", "metrics")]
        assert await fail_often() == failures
        assert await fail_often() == []
        clock.advance(LOG_SECONDS)
        assert await fail_often() == failures
