"""Log lines are events with fields, and the reference lists all of them."""

from __future__ import annotations

import re

import pytest

from eventd.egress.loop.link_log import EVENTS
from tests.support.log_events import LogEvent, log_events
from tests.support.source import ROOT, read_sources

LOGGED = [event for source in read_sources() for event in log_events(source)]
LISTED = {
    name: (set(levels.split(", ")), set(re.findall(r"`(\w+)`", fields)))
    for name, levels, fields in re.findall(
        r"^\| `([^`]+)` \| (\w[\w, ]*) \|([^|]*)\|", (ROOT / "docs/reference/logs.md").read_text(), re.MULTILINE
    )
}


@pytest.mark.parametrize("event", LOGGED, ids=lambda event: event.place)
def test_a_line_is_an_event_of_the_reference(event: LogEvent) -> None:
    if event.name is None:
        assert event.place.startswith("eventd/egress/loop/link_log.py"), "what differs belongs into fields"
        return
    assert event.name in LISTED, f"{event.name} is not in docs/reference/logs.md"
    levels, fields = LISTED[event.name]
    assert event.level in levels
    assert event.fields <= fields


def test_no_event_of_the_reference_is_gone() -> None:
    assert LISTED.keys() == {event.name for event in LOGGED if event.name is not None} | {*EVENTS.values()}
