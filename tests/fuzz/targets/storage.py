"""What is stored: a damaged line is reported or left out, never returned as another; records keep their parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from eventd.log.core.blocks import UNREADABLE, Block, unpack, unpack_readable
from eventd.log.core.records import (
    View,
    body_of_event,
    compact,
    content_size,
    data_begin,
    parse_record_id,
    read_body,
    record_id,
    render,
    tag_of,
    write_body,
)
from federation.event import decode_canonical, encode
from tests.fuzz.target import FuzzTarget
from tests.fuzz.targets.batches import event

LINES = [event(1), event(2, subject="é"), event(3, group="h")]


def block(text: str) -> Block:
    size, records = len(text.encode("utf-8", "surrogatepass")), text.count("\n")
    return Block(7, 1, 3, records, size, 5, 1, None, '["a.b"]', '["n"]', '[""]', None, None, text)


def check_block(data: bytes) -> None:
    """Bytes 0 to 2 change one bit of a stored block; the rest replaces its last line."""
    stored = block("\n".join([*LINES, ""])) if len(data) < 4 else block("\n".join([*LINES[:2], _line(data[3:]), ""]))
    flipped = bytearray(stored.text.encode())
    flipped[int.from_bytes(data[:2], "big") % len(flipped)] ^= 1 << (data[2] % 8 if len(data) > 2 else 0)
    damaged = flipped.decode("utf-8", "replace")
    if damaged.count("\n") != stored.records:  # another number of lines is found by the count of the row
        return
    changed = block(damaged)
    found = unpack_readable(changed)
    assert len(found) <= changed.records
    rows = changed.rows()
    assert [rows[record.position - changed.position] for record in found] == [record.body for record in found]
    with suppress(*UNREADABLE):
        whole = unpack(changed)
        assert whole == found
        assert len(whole) == changed.records


def _line(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\n", " ")


def check_record(data: bytes) -> None:
    """Two JSON texts, separated by a line feed: data and meta; the length of the first is that of node and tag."""
    first, _, second = data.decode("utf-8", "replace").partition("\n")
    try:
        value, meta = compact(first), compact(second) if second else None
    except ValueError:
        return
    assert compact(value) == value
    assert _same(json.loads(value), json.loads(first))
    node, tag = (f"n{value[:20]}", value[-20:]) if len(first) % 2 else (None, None)
    body = write_body(node, tag, value, meta)
    parts = read_body(body)
    assert tag_of(body) == tag
    assert (parts.node, parts.tag, parts.data, parts.meta) == (node, tag, value, meta)
    assert body[data_begin(body) : -1] == value
    assert content_size(body) == len(value.encode()) + len((meta or "").encode())
    for view in (View(), View(tags=True), View(meta=False), View(data=False, tags=True)):
        shown = json.loads(render(7, 9, body, view))
        assert (shown["$seq"], shown["$ts"], shown.get("$node")) == (7, 9, node)
        assert shown.get("$tag") == (tag if view.tags else None)
        assert ("data" in shown, "meta" in shown) == (view.data, view.meta and meta is not None)


def _same(one: object, other: object) -> bool:
    return repr(one) == repr(other)


def check_event_body(data: bytes) -> None:
    """A canonical event becomes a record, whose data are the payload or the data in it."""
    try:
        line = encode(decode_canonical(data)).decode()
    except ValueError:
        return
    except Exception as error:
        if type(error).__name__ in ("NotCanonical", "InvalidEvent", "BadEvent"):
            return
        raise
    parts = read_body(body_of_event(line))
    json.loads(parts.data)
    json.loads(parts.meta or "{}")


def check_record_id(data: bytes) -> None:
    found = parse_record_id(data.decode("latin-1"))
    if found is not None:
        again = parse_record_id(record_id(found.instance, found.seq, found.millis * 1000))
        assert again == found


def block_seeds() -> Iterable[bytes]:
    yield from (b"\0\0\0", b"\1\x20\3" + event(4).encode(), b"\0\5\7{}")


def record_seeds() -> Iterable[bytes]:
    yield b'{"a": [1, "x\\u00e9\\n", 1.50]}\n{"m":null}'
    yield b'"\\ud83d\\ude00"\n'
    yield b"5\n[]"


def event_seeds() -> Iterable[bytes]:
    yield from (line.encode() for line in LINES)


def id_seeds() -> Iterable[bytes]:
    yield record_id(5, 9, 1780142400000000).encode()


_WORDS = ('"id":"', '"payload":{', "\\u0041", "\\ud83d\\ude00", '","data":', '{"$node":"', '"meta":', '"$tag":"')
TARGETS = (
    FuzzTarget("blocks", check_block, block_seeds, _WORDS),
    FuzzTarget("records", check_record, record_seeds, _WORDS),
    FuzzTarget("records-of-events", check_event_body, event_seeds, _WORDS),
    FuzzTarget("record-ids", check_record_id, id_seeds),
)
