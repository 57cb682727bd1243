"""Outbound lines to a peer are one body, and divide into exactly the records they are made of."""

from __future__ import annotations

from eventd.egress.peers.outbound_batch import OutboundLine, OutboundLines, PeerBatch
from federation.peers import BATCH_TYPE, RUNS_TYPE

BODY = b'3\t\t{"id":"a"}\n5\tx,y\t{"id":"b"}\n9\t\t{"id":"c"}\n'
LINES = OutboundLines(BODY, 3, oldest=7)


def _load(lines: OutboundLines, *exceptions: tuple[int, str]) -> PeerBatch:
    return PeerBatch(0, 10, "e", 1, lines, exceptions)


def test_lines_come_apart_into_position_path_and_body() -> None:
    assert list(LINES) == [
        OutboundLine(3, "", '{"id":"a"}'),
        OutboundLine(5, "x,y", '{"id":"b"}'),
        OutboundLine(9, "", '{"id":"c"}'),
    ]
    assert [line.event_id for line in LINES] == ["a", "b", "c"]


def test_a_part_of_the_lines_is_the_same_bytes() -> None:
    assert LINES[:1].body + LINES[1:].body == BODY
    assert (len(LINES[1:]), LINES[1:].oldest) == (2, 7)


def test_runs_come_apart_like_lines_and_a_part_of_them_is_lines() -> None:
    runs = OutboundLines(b'3\t2\t22\t\n{"id":"a"}\n{"id":"b"}\n9\t1\t11\tx,y\n{"id":"c"}\n', 3, 7, RUNS_TYPE)
    assert list(runs) == [
        OutboundLine(3, "", '{"id":"a"}'),
        OutboundLine(4, "", '{"id":"b"}'),
        OutboundLine(9, "x,y", '{"id":"c"}'),
    ]
    part = runs[1:]
    assert (part.body, part.form) == (b'4\t\t{"id":"b"}\n9\tx,y\t{"id":"c"}\n', BATCH_TYPE)


def test_no_lines_are_nothing() -> None:
    empty = LINES[:0]
    assert (empty.body, len(empty), bool(empty), list(empty)) == (b"", 0, False, [])


def test_a_repair_picks_what_it_sends_and_what_it_must_not_send() -> None:
    load = _load(LINES, (4, "expired"), (10, "in_path"))
    assert load.picked(10) == [3, 4, 5, 9, 10]
    assert load.picked(5) == [3, 4, 5]


def test_a_repair_of_exceptions_alone_claims_only_them() -> None:
    """Without positions of its own, its ledger row would mark a whole range as delivered."""
    assert _load(LINES[:0], (4, "expired")).picked(10) == [4]
