"""Events decoded as a whole request: the result is the same as for one event after the other."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.admin.events.emitted import BadEvents, EventsTooLarge, drafts_from, drafts_one_by_one
from eventd.api.admin.events.event_columns import drafts_of, read_events
from eventd.errors import EventdError
from eventd.log.core.values import Drafts
from eventd.resources.group_configuration import effective
from eventd.testing import NOW
from tests.unit.resources.samples import GROUP, rows

EDGE = effective(rows(GROUP))["edge"]
TIMES = [
    "2026-05-30T10:13:20Z",
    "2026-05-30T10:13:20.500000Z",
    "2026-05-30T10:13:20.5Z",
    "2026-05-30T10:13:20.1234567Z",
    "2026-05-30T12:13:20+02:00",
    "2026-05-30T12:13:20-00:00",
    "2026-05-30t10:13:20z",
    "2026-05-30 10:13:20Z",
    "2026-05-30T10:13:20",
    "2026-02-30T10:13:20Z",
    "2026-05-30T24:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T01:00:00+01:00",
    "9999-12-31T23:59:59.999999Z",
    "",
    "now",
]
texts = st.one_of(
    st.sampled_from(
        ["", "a", "edge", "t.u", "a b", " a", "b\t", "\u2003c", "\x1cd", "e\x85", "ä", "x" * 512, "x" * 513]
    ),
    st.text(max_size=4),
)
times = st.sampled_from(TIMES)
odd: st.SearchStrategy[Any] = st.sampled_from([None, 7, [], {}, True])
members = {
    **dict.fromkeys(("group", "sourceNode", "type", "subject", "dedupeKey"), texts | odd),
    "id": texts.filter(lambda text: text != "") | st.sampled_from([7, []]),
    "payload": st.dictionaries(texts, texts, max_size=3) | odd,
    "observedAt": times | odd,
    "expiresAt": times | odd,
    "ttl": st.sampled_from(["5m", "0s", "soon"]) | odd,
    "seq": st.integers(),
    "typo": texts,
}
usual = st.fixed_dictionaries(
    {"id": st.sampled_from("abcdef"), "type": st.sampled_from(["t", "u"])},
    optional={name: members[name] for name in ("sourceNode", "subject", "payload", "observedAt", "expiresAt")},
)
wild = st.fixed_dictionaries(
    {"id": members["id"]}, optional={name: kind for name, kind in members.items() if name != "id"}
)


def no_chance(size: int) -> bytes:
    return bytes(size)


def fate(events: Sequence[Any], *, whole: bool) -> Drafts | tuple[str, Any]:
    how = drafts_from if whole else drafts_one_by_one
    try:
        found = how(events, EDGE, now=NOW, random=no_chance)
    except (BadEvents, EventsTooLarge) as error:
        return error.message, error.detail
    return found if isinstance(found, Drafts) else Drafts.of(found)


def columns(drafts: Any) -> Any:
    return [*map(list, (drafts.event_ids, drafts.paths, drafts.bodies))] if isinstance(drafts, Drafts) else None


@given(st.lists(usual | wild, min_size=1, max_size=4))
def test_all_at_once_is_one_after_the_other(events: list[dict[str, Any]]) -> None:
    single = fate(events, whole=False)
    facts = read_events(json.dumps({"events": events}).encode())
    ways: list[Sequence[Any]] = [events, *([] if facts is None else [facts.events])]
    for way in ways:
        together = fate(way, whole=True)
        if isinstance(single, Drafts):
            assert isinstance(together, Drafts)
            assert columns(together) == columns(single)
            assert (together.types, together.sources) == (single.types, single.sources)
            assert together.expires_first == single.expires_first
        else:
            assert together == single


@pytest.mark.parametrize(
    "event",
    [
        {"type": "t"},
        {"type": "t", "id": "i", "group": "edge", "sourceNode": "z", "subject": "a b", "dedupeKey": "k"},
        {"type": "t", "observedAt": "2026-05-30T10:13:20Z", "expiresAt": "2026-05-30T10:13:20.123Z"},
        {"type": "t", "observedAt": "2026-05-30T10:13:20+02:00", "payload": {"ü": '"\\\n'}},
        {"type": "ä\x1cb", "observedAt": None},
    ],
)
def test_usual_events_need_no_closer_look(event: dict[str, Any]) -> None:
    facts = read_events(json.dumps({"events": [event] * 3, "brief": True}).encode())
    assert facts is not None
    assert facts.brief
    assert drafts_of(facts.events, EDGE, now=NOW, random=no_chance) is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"events":[]}',
        b'{"events":[{"type":"t","ttl":"5m"}]}',
        b'{"events":[{"type":"t"}],"group":"g"}',
        b'{"events":[{"type":"t"}],"brief":"true"}',
        b'{"events":[{"type":"\\ud800"}]}',
        b'{"events":[{"type":"\xff"}]}',
        b'{"events":' + b"[" * 5000,
        b'{"events":[' + b",".join([b'{"type":"t"}'] * 10_001) + b"]}",
    ],
)
def test_other_bodies_are_left_to_the_general_way(body: bytes) -> None:
    assert read_events(body) is None


def test_ids_that_are_missing_are_made_in_rising_order() -> None:
    chance = iter(range(1, 100))
    events = [{"type": "t"}, {"type": "t", "id": "mine"}, {"type": "t"}]
    drafts = drafts_from(events, EDGE, now=NOW, random=lambda size: next(chance).to_bytes(1, "big") * size)
    first, mine, last = drafts.event_ids
    assert mine == "mine"
    assert first <= last
    assert [uuid.UUID(made).version for made in (first, last)] == [7, 7]
    assert [json.loads(body)["dedupeKey"] for body in drafts.bodies] == [first, "mine", last]


def test_what_is_too_large_is_named_with_all_that_is_wrong() -> None:
    large = {"type": "t", "payload": {"k": "v" * EDGE.limits.max_event_bytes}}
    with pytest.raises(EventsTooLarge) as told:
        drafts_from([{"type": "t"}, large], EDGE, now=NOW, random=no_chance)
    assert [problem["index"] for problem in told.value.detail] == [1]
    with pytest.raises(EventdError, match="2 of 2 events are wrong"):
        drafts_from([{}, large], EDGE, now=NOW, random=no_chance)
