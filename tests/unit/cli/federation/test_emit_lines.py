"""Many events from a stream: chunks, order, line numbers, and the error if the node fails in the middle."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from eventd.api.admin.events.emitted import BadEvents, EventProblem, EventsTooLarge
from eventd.api.errors.codes import API_FORM, restore
from eventd.api.errors.problems import encode
from eventd.cli.federation import emit_lines
from eventd.cli.federation.emit_lines import MOST_BAD, Emission
from eventd.cli.terminal import input_lines
from eventd.cli.terminal.input_lines import InputLines
from eventd.cli.terminal.output import ZERO_TIME
from eventd.dynamic.guard import SelfCapture
from eventd.errors import Conflict, EventdError, Full, Invalid, NotFound, Unavailable


class Node:
    """Takes events as a node does; `trouble` is raised for the request with that number, from 0."""

    def __init__(self, **trouble: EventdError) -> None:
        self.requests: list[tuple[str, list[dict[str, Any]]]] = []
        self._trouble = {int(number[1:]): error for number, error in trouble.items()}

    async def call(self, operation: str, *, group: str, events: list[dict[str, Any]], brief: bool) -> dict[str, Any]:
        assert operation == "events.emit"
        assert brief
        self.requests.append((group, events))
        if error := self._trouble.get(len(self.requests) - 1):
            raise error
        return {"results": [{"id": event["id"], "result": event.get("result", "new")} for event in events]}


async def emit(node: Node, lines: list[tuple[str, dict[str, Any]]]) -> Emission:
    found = Emission(node)  # type: ignore[arg-type]
    for number, (group, event) in enumerate(lines, start=1):
        await found.add(number, group, event, 10)
    await found.flush_all()
    return found


async def test_lines_are_stored_in_chunks_and_in_the_order_of_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_lines, "CHUNK", 3)
    node = Node()
    found = await emit(node, [("gh"[n % 2], {"id": n}) for n in range(10)])
    assert [(group, [event["id"] for event in events]) for group, events in node.requests] == [
        ("g", [0, 2, 4]),
        ("h", [1, 3, 5]),
        ("g", [6, 8]),
        ("h", [7, 9]),
    ]
    assert found.counts["new"] == 10


async def test_large_lines_make_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_lines, "CHUNK_BYTES", 25)
    node = Node()
    await emit(node, [("g", {"id": n}) for n in range(7)])
    assert [len(events) for _, events in node.requests] == [3, 3, 1]


async def test_wrong_events_are_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    large = EventsTooLarge([EventProblem(0, "300 bytes")], 3)
    node = Node(r0=BadEvents([EventProblem(1, "type is required"), EventProblem(3, "no")], 5), r1=large)
    found = await emit(node, [("g", {"id": n}) for n in range(5)])
    assert [[event["id"] for event in events] for _, events in node.requests] == [[0, 1, 2, 3, 4], [0, 2, 4], [2, 4]]
    assert found.counts["new"] == 2
    assert capsys.readouterr().err.splitlines() == ["line 2: type is required", "line 4: no", "line 1: 300 bytes"]


async def test_a_conflict_is_about_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = await emit(Node(), [("g", {"id": "a"}), ("g", {"id": "b", "result": "conflict"})])
    assert found.bad == [{"line": 2, "message": "the id b belongs to an event with other content or of another source"}]
    alone = await emit(Node(r0=Conflict("the id a is taken")), [("g", {"id": "a"})])
    assert alone.bad == [{"line": 1, "message": "the id a is taken"}]
    assert found.counts["conflict"] == alone.counts["conflict"] == 1


async def test_of_a_chunk_with_captured_addresses_the_other_lines_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    refused = SelfCapture([(1, "10.0.0.1 is captured", ""), (2, "10.0.0.2 is captured", "")])
    of_a_server = restore(409, encode(API_FORM.body(refused)))
    for error in (refused, of_a_server):
        node = Node(r0=error)
        found = await emit(node, [("g", {"id": n}) for n in range(4)])
        assert [[event["id"] for event in events] for _, events in node.requests] == [[0, 1, 2, 3], [0, 3]]
        assert found.counts["new"] == 2
        said = capsys.readouterr().err.splitlines()
        assert said == ["line 2: 10.0.0.1 is captured", "line 3: 10.0.0.2 is captured"]


async def test_an_unknown_group_concerns_its_own_lines_only() -> None:
    found = await emit(
        Node(r0=NotFound("EventGroup x is not declared")), [("x", {"id": 1}), ("g", {"id": 2}), ("x", {"id": 3})]
    )
    assert [bad["line"] for bad in found.bad] == [1, 3]
    assert found.counts["new"] == 1


@pytest.mark.parametrize("error", [Full("the topic is full"), Unavailable("the node is stopping", hint="wait")])
async def test_a_node_in_trouble_ends_it_and_says_where_to_go_on(
    error: EventdError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit_lines, "CHUNK", 2)
    node = Node(r1=error)
    with pytest.raises(type(error)) as raised:
        await emit(node, [("g", {"id": 1}), ("g", {"id": 2}), ("h", {"id": 3}), ("g", {"id": 4}), ("g", {"id": 5})])
    assert raised.value.message == error.message
    assert raised.value.hint.endswith("lines before 3 are done; repeat from there"), "line 3 waits for its group"


@pytest.mark.parametrize(
    ("ahead", "text"),
    [(1, "no line is done; repeat the whole input"), (2, "lines before 2 are done; repeat from there")],
)
def test_progress_names_the_line_from_which_to_repeat(ahead: int, text: str) -> None:
    assert Emission(Node()).progress(ahead) == text  # type: ignore[arg-type]


async def test_an_invalid_request_that_names_no_event_is_not_swallowed() -> None:
    with pytest.raises(Invalid, match="the whole request is wrong"):
        await emit(Node(r0=Invalid("the whole request is wrong")), [("g", {"id": 1})])


async def test_only_so_many_bad_lines_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = Emission(Node())  # type: ignore[arg-type]
    for number in range(1, MOST_BAD + 51):
        found.refuse(number, "no")
    assert len(capsys.readouterr().err.splitlines()) == 100
    assert found.bad[-1] == {"line": MOST_BAD, "message": "no"}  # what is kept has a bound, as the input has none
    assert found.refused == MOST_BAD + 50


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ({}, {"type": "t", "subject": "s", "sourceNode": "leaf", "ttl": "1h"}),
        ({"type": "own", "subject": "", "ttl": None}, {"type": "own", "subject": "s", "ttl": "1h"}),
        ({"ttl": "5m", "sourceNode": "x"}, {"ttl": "5m", "sourceNode": "x"}),
        ({"expiresAt": "2030-01-01T00:00:00Z"}, {"expiresAt": "2030-01-01T00:00:00Z", "ttl": None}),
        ({"expiresAt": ZERO_TIME}, {"expiresAt": ZERO_TIME, "ttl": "1h"}),
    ],
)
async def test_options_fill_in_only_what_a_line_lacks(line: dict[str, Any], filled: dict[str, Any]) -> None:
    node = Node()
    defaults = {"type": "t", "subject": "s", "sourceNode": "leaf", "ttl": "1h"}
    found = Emission(node, "g", defaults)  # type: ignore[arg-type]
    await found.take(1, msgspec.json.encode({"id": "i", **line}))
    await found.flush_all()
    ((_, (event,)),) = node.requests
    assert {name: event.get(name) for name in filled} == filled


async def test_lines_are_read_as_they_arrive_with_their_numbers() -> None:
    given = b"one\n\n  \ntwo\n" + b"x" * 35 + b"\nthree"
    lines = InputLines(io.BytesIO(given), longest=10)
    found = [*(await lines.read() or ()), *(await lines.read() or ())]
    assert found == [(1, b"one"), (4, b"two"), (5, b"x" * 35), (6, b"three")]
    assert await lines.read() is None


async def test_of_a_line_that_is_too_long_no_more_is_held_than_shows_that_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_lines, "AT_ONCE", 4)
    lines = InputLines(io.BytesIO(b"x" * 35 + b"\nshort\n"), longest=10)
    found = []
    while (some := await lines.read()) is not None:
        found += some
    assert found == [(1, b"x" * 11), (2, b"short")]


async def test_input_that_is_stopped_in_a_line_leaves_that_line_out() -> None:
    lines = InputLines(io.BytesIO(b"one\ntw"), longest=10)
    assert await lines.read() == [(1, b"one")]
    assert lines.unfinished
    lines.stop()
    assert await lines.read() is None
    assert (lines.finished, lines.unfinished) == (1, True)
