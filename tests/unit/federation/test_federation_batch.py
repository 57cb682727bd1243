from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.batch import Line, Lines, decode_batch, encode_batch, judge, read_batch
from federation.errors import BadEvent, Malformed, TooLarge
from federation.event import Event, decode_canonical, encode
from federation.keys import Key
from federation.peers import Limits
from federation.ranges import Range
from federation.wire import Refusal
from tests.unit.federation.samples import events, make_event, make_header

ALL = Range(epoch="e", after=0, upto=10**6)
LIMITS = Limits()


def bodies(*values: Event) -> list[tuple[int, str, str]]:
    return [(number, "", encode(event).decode()) for number, event in enumerate(values, 1)]


@given(st.lists(events, max_size=5), st.sampled_from(["", "c", "c,d%20e"]))
def test_batch_is_read_back(values: list[Event], path: str) -> None:
    records = [(number, path, body) for number, _, body in bodies(*values)]
    batch = decode_batch(encode_batch(records), ALL, LIMITS)
    assert batch.refused == []
    assert list(batch.lines) == [Line(*record, event) for record, event in zip(records, values, strict=True)]
    assert encode_batch(records) == "".join(f"{at}\t{way}\t{body}\n" for at, way, body in records).encode()


lines = st.one_of(
    events.map(lambda event: encode(event).decode()),
    st.tuples(events.map(lambda event: encode(event).decode()), st.integers(0, 300), st.sampled_from(' \\"\t}\0é')).map(
        lambda made: made[0][: made[1]] + made[2] + made[0][made[1] :]
    ),
    st.sampled_from(
        [
            encode(make_event(subject=" x")).decode(),
            encode(make_event(subject="x\u3000")).decode(),
            encode(make_event(subject="x\x1c")).decode(),
            encode(make_event(subject="\ty")).decode(),
            encode(make_event(dedupe_key="")).decode(),
            encode(make_event(payload={"a": "\0"})).decode(),
            encode(make_event(payload={"a": " \\u0000 "})).decode(),
            encode(Event(id="e", group="g", type="t", dedupe_key="e")).decode(),
            encode(make_event()).decode().replace("Z", "+09:00"),
            "",
        ]
    ),
)


@given(st.lists(lines, min_size=1, max_size=6))
def test_many_lines_at_once_are_judged_like_each_alone(texts: list[str]) -> None:
    body = encode_batch([(number, "", text) for number, text in enumerate(texts, 1)])
    batch = decode_batch(body, ALL, LIMITS)
    taken, refused = {}, {}
    for number, text in enumerate(texts, 1):
        try:
            taken[number] = decode_canonical(text)
        except BadEvent as error:
            refused[number] = error.refusal
    assert {line.position: line.event for line in batch.lines} == taken
    assert {refusal.position: refusal.reason for refusal in batch.refused} == refused


@given(st.binary(max_size=80) | st.text("1\t\n{}a", max_size=12).map(str.encode))
def test_any_body_is_a_batch_or_malformed(body: bytes) -> None:
    try:
        batch = decode_batch(body, ALL, LIMITS)
    except Malformed:
        return
    assert len(batch.lines) + len(batch.refused) == body.count(b"\n")


def test_lines_of_several_spans_are_all_read() -> None:
    records = [
        (number, "", encode(make_event(f"evt-{number}", subject="x" * 400)).decode()) for number in range(1, 501)
    ]
    records.append((501, "", encode(make_event("long", payload={"a": "x" * 200_000})).decode()))
    records.append((502, "", "broken"))
    batch = decode_batch(encode_batch(records), ALL, LIMITS)
    assert [line.event.id for line in batch.lines] == [f"evt-{number}" for number in range(1, 501)] + ["long"]
    assert batch.refused == [Refusal(502, "", "not_canonical")]


def test_positions_rise_over_the_edge_of_a_span() -> None:
    text = encode(make_event(payload={"a": "x" * 70_000})).decode()
    with pytest.raises(Malformed, match=re.escape("the positions after 2 do not rise")):
        decode_batch(encode_batch([(2, "", text), (1, "", text)]), ALL, LIMITS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"1\t\t{}", "the last line of the batch does not end with a line feed"),
        (b"1\n\n", "not position, path and event"),
        (b"\n", "not position, path and event"),
        (b"1\t\n", "not position, path and event"),
        (b"x\t\t{}\n", "a position after 0 is not a number"),
        ("１\t\t{}\n".encode(), "do not rise from line to line"),
        (b" 1\t\t{}\n", "do not rise from line to line"),
        (b"1_0\t\t{}\n", "do not rise from line to line"),
        (b"-1\t\t{}\n", "do not rise from line to line"),
        (b"0\t\t{}\n", "do not rise from line to line"),
        (b"9" * 5000 + b"\t\t{}\n", "is not a number"),
        (b"1000001\t\t{}\n", "position 1000001 lies beyond the range"),
        (b"1\n\t{}\t2\t\t{}\n", "not position, path and event"),
    ],
)
def test_body_that_cannot_be_taken_apart(body: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        decode_batch(body, ALL, LIMITS)


def test_repair_may_hold_any_position_a_header_could_name() -> None:
    repair = Range(epoch="e", repair=True)
    text = encode(make_event()).decode()
    assert len(decode_batch(encode_batch([(10**15 - 1, "", text)]), repair, LIMITS).lines) == 1
    with pytest.raises(Malformed, match="beyond the range"):
        decode_batch(encode_batch([(10**15, "", text)]), repair, LIMITS)


def test_limits_are_measured_in_bytes() -> None:
    records = bodies(make_event(payload={"a": "é" * 10}), make_event("evt-2"))
    body, first = encode_batch(records), records[0][2]
    assert len(decode_batch(body, ALL, Limits(batch_bytes=len(body), batch_events=2)).lines) == 2
    with pytest.raises(TooLarge, match=f"at most {len(body) - 1} bytes") as caught:
        decode_batch(body, ALL, Limits(batch_bytes=len(body) - 1))
    assert (caught.value.limit, caught.value.unit) == (len(body) - 1, "bytes")
    with pytest.raises(TooLarge, match="at most 1 lines") as caught:
        decode_batch(body, ALL, Limits(batch_events=1))
    assert (caught.value.limit, caught.value.unit) == (1, "events")
    for broken in (b"\n" + body, body + b"\n", body + b"1", body + body):  # too many lines come before broken ones
        with pytest.raises(TooLarge, match="at most 1 lines"):
            decode_batch(broken, ALL, Limits(batch_events=1))
    assert len(decode_batch(body, ALL, Limits(event_bytes=len(first.encode()))).lines) == 2
    tight = decode_batch(body, ALL, Limits(event_bytes=len(first.encode()) - 1))
    assert tight.refused == [Refusal(1, "evt-1", "too_large")]


def test_path_that_cannot_be_read_spoils_its_line_only() -> None:
    text = encode(make_event()).decode()
    batch = decode_batch(encode_batch([(1, "c", text), (2, "c,,d", text)]), ALL, LIMITS)
    assert [line.path for line in batch.lines] == ["c"]
    assert batch.refused == [Refusal(2, "evt-1", "invalid")]


def test_judging_keeps_the_order_of_positions() -> None:
    key = Key.hmac("a", "s", owner="a", speaks_for=["a", "c"])
    records = [
        (1, "", encode(make_event("evt-1", source_node="b")).decode()),
        (2, "", "broken"),
        (3, "", encode(make_event("evt-3", group="core")).decode()),
        (4, "c", encode(make_event("evt-4", source_node="c")).decode()),
        (5, "c,b", encode(make_event("evt-5", source_node="c")).decode()),
        (6, "c,b", encode(make_event("evt-6", source_node="d")).decode()),
        (7, "c", encode(make_event("evt-7", source_node="c")).decode()),
    ]
    batch = read_batch(encode_batch(records), make_header(), key, LIMITS)
    assert [line.position for line in batch.lines] == [4, 7]
    assert [(refusal.position, refusal.reason) for refusal in batch.refused] == [
        (1, "own_source"),
        (2, "not_canonical"),
        (3, "wrong_group"),
        (5, "loop"),
        (6, "source_not_allowed"),
    ]
    assert judge(Lines(), make_header(), key, LIMITS) == (Lines(), [])


def test_only_what_comes_together_is_judged_together() -> None:
    """Else a batch of own events and handed-on ones would have to be judged line by line."""
    records = [
        (1, "", encode(make_event("evt-1", source_node="a")).decode()),
        (2, "c", encode(make_event("evt-2", source_node="c")).decode()),
        (3, "", encode(make_event("evt-3", source_node="a")).decode()),
    ]
    lines = decode_batch(encode_batch(records), ALL, LIMITS).lines
    assert {(source, path) for _, source, path in lines.origins} == {("a", ""), ("c", "c")}
