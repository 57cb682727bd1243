"""Files of a lake: each is refused with the declared error, or is written and read again as the same."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable
from typing import Any

import msgspec

from eventd.lake.expiry import Expiry
from eventd.lake.file_tree import read_line
from eventd.lake.footer_statistics import decode_footer, time_bounds
from eventd.lake.history_rows import read_hash_row, write_hashes
from eventd.lake.layout import parse_path
from eventd.lake.manifest import (
    LakeHead,
    Manifest,
    NodeState,
    Unreadable,
    decode,
    decode_selection,
    encode,
)
from eventd.lake.schema import Ledger
from federation.errors import HistoryError
from tests.fuzz.target import FuzzTarget


def check_file(data: bytes) -> None:
    for kind in (Manifest, NodeState, LakeHead, Expiry):
        try:
            found: Any = decode(data, kind)
        except Unreadable:
            continue
        assert decode(encode(found), kind) == found
    try:
        conditions = decode_selection(data.decode("utf-8", "surrogateescape"))
    except Unreadable:
        return
    assert decode_selection(conditions.text) == conditions
    conditions.selector.matches(type="a", subject="b", source="c", payload={})


def check_footer(data: bytes) -> None:
    whole = data + struct.pack("<I", len(data)) + b"PAR1"
    try:
        footer = decode_footer(whole)
        bounds = time_bounds(footer, "recorded_at")
    except ValueError:
        return
    if bounds is not None:
        assert all(-(2**63) <= bound < 2**63 for bound in bounds)


def check_line(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    line = read_line(text)
    assert line is None or line.text() == text
    place = parse_path(text)
    if place is not None:
        assert text in (place.data, place.manifest)
        assert place.after <= place.upto
    try:
        hashes = read_hash_row(text)
    except HistoryError:
        return
    assert b64decode(text).startswith(b"".join(hashes))
    assert read_hash_row(write_hashes(b"".join(hashes))) == hashes


def file_seeds() -> Iterable[bytes]:
    yield encode(LakeHead(id="x", made_at=1780142400000000))
    yield encode(
        Manifest(
            book=Ledger.EVENTS, node="a", epoch="e", after=0, upto=9, rows=9, bytes=7, sha256="00", slots=(1, 2),
            times=(1, 2), written_at=3,
        )
    )  # fmt: skip
    state = NodeState(node="a", epoch="e", instance="i", began_at=1, as_of=2, head=3, complete_until=4)
    yield encode(msgspec.structs.replace(state, books={Ledger.EVENTS: 3}))
    yield encode(Expiry())
    yield b'{"types":["a.*"],"relay":true,"payload":{"k":"v"}}'


def footer_seeds() -> Iterable[bytes]:
    # version 1, schema [], rows 0, row groups [{columns [{meta data {type 2, path, statistics}}]}]
    path = b"\x19\x18\x0brecorded_at"
    statistics = b"\x2c" + b"\x58\x08" + bytes(8) + b"\x18\x08" + bytes(8) + b"\0"
    column = b"\x3c" + b"\x15\x04" + b"\x29" + path[1:] + b"\x9c" + statistics[1:] + b"\0" + b"\0"
    yield b"\x15\x02\x19\x0c\x16\0\x19\x1c\x19\x1c" + column + b"\0" + b"\0"
    yield b"\x15\x02\x19\x0c\x16\0\x19\x0c\0"


def line_seeds() -> Iterable[bytes]:
    yield b"begin events 12"
    name = b"landing/book=events/date=2026-05-30/node=a/a-e-1-9"
    yield b"ship " + name + b" " + b"0" * 64
    yield name + b".parquet"


TARGETS = (
    FuzzTarget(
        "lake-files", check_file, file_seeds, ('"schema": 1', '"lost": [[', '"groups": [{', '"tree": {', "null")
    ),
    FuzzTarget("lake-footers", check_footer, footer_seeds, ("recorded_at", "\x19\x1c", "\x15\x02")),
    FuzzTarget("lake-lines", check_line, line_seeds, ("ship ", "archive ", "drop ", "after ", ".parquet", ".json")),
)
