"""A full disk makes requests fail many times a second: the log names their number, not each of them."""

from __future__ import annotations

import pytest

from eventd.api.errors import failed_requests
from eventd.api.errors.failed_requests import FailedRequests
from eventd.errors import DatabaseUnavailable, EventdError, Unavailable

EMIT, APPLY = "POST /api/v1/groups/{group}/events", "POST /api/v1/apply"


def test_failures_of_one_kind_are_logged_once_a_minute_with_their_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Loop:
        now = 0.0

        def time(self) -> float:
            return self.now

    loop, failed = Loop(), FailedRequests()
    monkeypatch.setattr(failed_requests, "get_running_loop", lambda: loop)
    full, other = DatabaseUnavailable("disk full"), Unavailable("stops")

    def logged(error: EventdError, route: str, request: str) -> tuple[object, ...] | None:
        caplog.clear()
        failed.note(error, route, request)
        return next(((line.message, vars(line)["count"], vars(line).get("request")) for line in caplog.records), None)

    assert logged(full, EMIT, "r1") == ("request failed", 1, "r1")
    assert [logged(full, EMIT, f"s{number}") for number in range(500)] == [None] * 500
    assert logged(other, EMIT, "r2") == ("request failed", 1, "r2"), "another code"
    assert logged(full, APPLY, "") == ("request failed", 1, None), "another route; without an id there is no field"
    loop.now = 60
    assert logged(full, EMIT, "r3") == ("request failed", 501, "r3")
