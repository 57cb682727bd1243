"""Repeated log lines are kept apart, each reason for itself."""

from __future__ import annotations

from eventd.runtime.log_pause import LOG_SECONDS, MOST_REASONS, LogPause


def test_each_reason_is_logged_once_in_a_pause_and_all_of_them_are_few() -> None:
    now = [0.0]
    pause = LogPause(lambda: now[0])
    assert pause.is_over_for("expired", "auth")
    assert not pause.is_over_for("expired", "auth")
    assert pause.is_over_for("for another tenant", "auth")
    assert pause.is_over_for("expired", "exchange")
    assert sum(pause.is_over_for(f"tenant {n}", "auth") for n in range(1000)) == MOST_REASONS - 2
    now[0] = LOG_SECONDS
    assert pause.is_over_for("expired", "auth")
