"""Log lines are events with fields, and the reference lists all of them."""

from __future__ import annotations

import re

import pytest

from eventd.egress.loop.link_log import EVENTS
from tests.support.log_events import LogEvent, log_events
from tests.support.source import ROOT, read_sources

LOGGED = [event for source in read_sources() for event in log_events(source)]
PAGE = (ROOT / "docs/reference/logs.md").read_text()
FIELDS = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", PAGE.partition("## Fields")[2], re.MULTILINE)
ALWAYS = {"ts", "level", "logger", "msg"}
OF_FAULTS = {"error", "trace", "causes"}
LISTED = {
    name: (set(levels.split(", ")), set(re.findall(r"`(\w+)`", fields)))
    for name, levels, fields in re.findall(
        r"^\| `([^`]+)` \| (\w[\w, ]*) \|([^|]*)\|", PAGE.partition("## Fields")[0], re.MULTILINE
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


def test_every_field_has_one_meaning_in_the_reference_and_none_is_gone() -> None:
    used = {field for _, fields in LISTED.values() for field in fields} | ALWAYS | OF_FAULTS
    assert len(FIELDS) == len(set(FIELDS))
    assert sorted(FIELDS) == sorted(used)


def test_the_names_that_other_programs_know_are_used_for_what_they_mean() -> None:
    """Collectors and dashboards find the parts of a federation by these names."""
    common = {"node", "group", "peer", "request", "action", "error"}
    assert common <= set(FIELDS)
    assert {"node", "group", "peer"} <= LISTED["link blocked"][1]
    assert {"request"} <= LISTED["request failed"][1] & LISTED["action"][1]
    assert not {"nodeName", "group_name", "request_id", "operation", "exception"} & set(FIELDS)
