"""Runs are another form of a batch: their content is validated like lines."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation import batch as batches
from federation.batch import Batch, decode_batch, encode_batch
from federation.errors import Malformed, TooLarge
from federation.event import encode
from federation.peers import RUNS_TYPE, Limits
from federation.ranges import Range
from federation.runs import Run, read_runs, split_runs
from tests.unit.federation.samples import events, make_event
from tests.unit.federation.test_federation_batch import lines

ALL = Range(epoch="e", after=0, upto=10**6)
LIMITS = Limits()
Record = tuple[int, str, str]


def encode_runs(records: list[Record]) -> bytes:
    """The records as runs, as long as they can be."""
    runs = groupby(enumerate(records), lambda pair: (pair[1][0] - pair[0], pair[1][1]))
    made = b""
    for _, run in runs:
        held = [record for _, record in run]
        text = "".join(f"{body}\n" for _, _, body in held).encode("utf-8", "surrogateescape")
        made += Run(held[0][0], len(held), held[0][1], text).encode()
    return made


def decode(body: bytes, limits: Limits = LIMITS, claim: Range = ALL) -> Batch:
    return decode_batch(body, claim, limits, form=RUNS_TYPE)


steps = st.tuples(st.sampled_from([1, 1, 1, 2]), st.sampled_from(["", "", "c", "c,d%20e", "c,,d"]))


@given(st.lists(st.tuples(steps, lines.filter(lambda text: "\t" not in text)), max_size=6))
def test_runs_hold_what_lines_hold(told: list[tuple[tuple[int, str], str]]) -> None:
    records: list[Record] = []
    position = 0
    for (step, path), body in told:
        position += step
        records.append((position, path, body))
    one, other = decode_batch(encode_batch(records), ALL, LIMITS), decode(encode_runs(records))
    assert list(other.lines) == list(one.lines)
    assert other.refused == one.refused
    assert (other.lines.ids, other.lines.types, other.lines.origins) == (
        one.lines.ids,
        one.lines.types,
        one.lines.origins,
    )
    assert (list(other.lines.bodies), other.lines.bodies.bytes) == (list(one.lines.bodies), one.lines.bodies.bytes)


@given(st.lists(events, min_size=1, max_size=5), st.sampled_from(["", "c", "c,d%20e"]))
def test_they_come_apart_into_what_they_are_made_of(values: list, path: str) -> None:  # type: ignore[type-arg]
    records = [(at, path, encode(value).decode()) for at, value in enumerate(values, 7)]
    assert list(split_runs(encode_runs(records))) == records
    [run] = read_runs(encode_runs(records))
    assert (run.position, run.last, run.records) == (7, 6 + len(values), len(values))


def test_a_long_run_is_read_in_spans() -> None:
    records = [(n, "", encode(make_event(f"evt-{n}", subject="x" * 400)).decode()) for n in range(1, 501)]
    records.insert(250, (0, "", encode(make_event("long", payload={"a": "x" * 200_000})).decode()))
    records.append((0, "", "broken"))
    records = [(n, path, body) for n, (_, path, body) in enumerate(records, 1)]
    batch = decode(encode_runs(records))
    assert [(line.position, line.body) for line in batch.lines] == [(n, body) for n, _, body in records[:-1]]
    assert [(one.position, one.reason) for one in batch.refused] == [(502, "not_canonical")]


def test_bytes_that_are_no_text_spoil_their_own_event() -> None:
    good = encode(make_event())
    batch = decode(Run(3, 2, "", good.replace(b"evt-1", b"evt-\xff") + b"\n" + good + b"\n").encode())
    assert [line.position for line in batch.lines] == [4]
    assert [(one.position, one.reason) for one in batch.refused] == [(3, "not_canonical")]
    spoilt = decode(Run(3, 1, "", good + b"\n").encode().replace(b"\t\n", b"\t\xff\n", 1))
    assert [(one.position, one.reason) for one in spoilt.refused] == [(3, "invalid")]


def test_the_limit_on_events_is_that_of_lines() -> None:
    body = encode_runs([(n, "", encode(make_event(f"evt-{n}")).decode()) for n in (1, 2, 4)])
    assert len(decode(body, Limits(batch_events=3)).lines) == 3
    with pytest.raises(TooLarge, match="at most 2 lines"):
        decode(body, Limits(batch_events=2))
    with pytest.raises(TooLarge, match="at most 2 lines"):
        decode(b"1\t999999999999999\t3\t\n{}\n", Limits(batch_events=2))


def test_no_more_of_a_run_is_looked_at_than_it_says_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member could have a node look at millions of lines in one request otherwise."""
    looked_at: list[str] = []
    alone = batches._decode_alone
    monkeypatch.setattr(batches, "_decode_alone", lambda *about: looked_at.append(about[1]) or alone(*about))
    with pytest.raises(Malformed, match="does not have the 100 events that its head states"):
        decode(Run(1, 100, "", b"{}\n" * 1_000_000).encode())
    assert looked_at == []


@given(st.binary(max_size=80) | st.text("1\t\n{}a", max_size=16).map(str.encode))
def test_any_body_is_runs_or_malformed(body: bytes) -> None:
    try:
        batch = decode(body)
    except (Malformed, TooLarge):
        return
    assert (len(batch.lines) + len(batch.refused) > 0) == bool(body)


def test_a_position_beyond_all_ranges_is_none() -> None:
    repair = Range(epoch="e", repair=True)
    text = encode(make_event()) + b"\n"
    assert len(decode(Run(10**15 - 1, 1, "", text).encode(), claim=repair).lines) == 1
    for position, held in ((10**15 - 1, 2), (10**15, 1)):
        with pytest.raises(Malformed):
            decode(Run(position, held, "", held * text).encode(), claim=repair)
