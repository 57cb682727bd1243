"""What commands say of the events that wait for a callback."""

from __future__ import annotations

import pytest

from eventd.cli.resources.describe import show_waiting


@pytest.mark.parametrize(
    ("events", "is_exact", "words"),
    [
        (0, True, "nothing"),
        (1, True, "1 event, the oldest for 5s"),
        (1, False, "1+ events, the oldest for 5s"),
        (1000, True, "1000 events, the oldest for 5s"),
        (1000, False, "1000+ events, the oldest for 5s"),
    ],
)
def test_a_count_that_ended_early_is_marked(events: int, is_exact: bool, words: str) -> None:
    assert show_waiting({"waitingEvents": events, "waitingIsExact": is_exact, "waitingSeconds": 5.0}) == words
