"""The records of a topic: their stored form, their identity, and the form for readers. Pure.

A record is stored as the text of one JSON object with its members in one order: `$node`, `$tag`, `meta`, `data`, all
but the last optional. Data and meta are kept as the client wrote them, but for white space and numeric escapes (see
`compact`). So a page of whole records is made by cutting and joining texts, without decoding. An empty body stands for
a record that was removed from inside a block: its line stays, so that positions and seqs remain consecutive.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

_NODE = '{"$node":"'
_TAG = '"$tag":"'
_META = '"meta":'
_DATA = '"data":'
_END = '","'
"""Ends a string member and begins the next one. It also occurs at the end of a text that ends with a quote and a comma,
where the first quote has a backslash before it: see `_end_of_text`."""

_INSTANCE_BITS, _SEQ_BITS = 38, 36
_RANDOM_BITS = 62  # of a UUID's second half; the first half holds the others
_DIGITS = "0123456789abcdef"


class RecordParts(NamedTuple):
    """A record's parts. `data` and `meta` are JSON texts; None: not set."""

    node: str | None
    tag: str | None
    data: str
    meta: str | None


class View(NamedTuple):
    """Which parts of a record a reader gets besides its seq, its time and its node, which it always gets.

    `bare`: it gets the data alone, as it is stored.
    """

    tags: bool = False
    meta: bool = True
    data: bool = True
    bare: bool = False


class Provenance(NamedTuple):
    """How a record reached its topic: by how many routers (counted from 0 after a group), and the id it keeps.

    `id` is empty unless the last router keeps ids (`fan_in`). It is then the `id` that the original kept; if that has
    none, the id of the event, or the original's record id in the source topic (see `record_id`).
    """

    hops: int
    id: str


class RecordId(NamedTuple):
    """The parts of a record's id: the instance number of its topic, its seq there, and when it was written.

    `millis`: milliseconds since 1970.
    """

    instance: int
    seq: int
    millis: int


def encoded(text: str) -> str:
    """Return a text as a JSON string, in the one form that bodies use."""
    return msgspec.json.encode(text).decode()


def write_body(node: str | None, tag: str | None, data: str, meta: str | None) -> str:
    """Return the stored form of a record; `data` and `meta` are JSON texts, `node` and `tag` plain ones."""
    return join_body("" if node is None else encoded(node), "" if tag is None else encoded(tag), data, meta or "")


def join_body(node: str, tag: str, data: str, meta: str) -> str:
    """Return the stored form of a record whose parts are JSON texts already; empty: not set."""
    parts = []
    if node:
        parts.append(f'"$node":{node}')
    if tag:
        parts.append(f'"$tag":{tag}')
    if meta:
        parts.append(f'"meta":{meta}')
    parts.append(f'"data":{data}}}')
    return "{" + ",".join(parts)


class _Body(msgspec.Struct):
    data: msgspec.Raw
    node: str | None = msgspec.field(default=None, name="$node")
    tag: str | None = msgspec.field(default=None, name="$tag")
    meta: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


_BODIES = msgspec.json.Decoder(_Body)


def read_body(body: str) -> RecordParts:
    """Return the parts of a stored body, which must not be empty; data and meta may be nested to any depth."""
    try:
        found = _BODIES.decode(body)
    except RecursionError:  # deeper than the stack here, which may be shorter than where the record was accepted
        return _cut_body(body)
    return RecordParts(found.node, found.tag, bytes(found.data).decode(), bytes(found.meta).decode() or None)


_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([\[{])|([\]}])', re.DOTALL)
"""A string, or a bracket that opens or closes a level."""


def _cut_body(body: str) -> RecordParts:
    """Return the parts of a stored body by cutting it, without decoding data and meta."""
    node, tag = node_text(body), tag_text(body)
    begin, at = _after_tag(body, _after_node(body)), data_begin(body)
    meta = body[begin + len(_META) : at - len(_DATA) - 1] if body.startswith(_META, begin) else None
    return RecordParts(json.loads(node) if node else None, json.loads(tag) if tag else None, body[at:-1], meta)


def data_begin(body: str) -> int:
    """Return the index at which the data of a stored body begins; it ends before the last character."""
    at = _after_tag(body, _after_node(body))
    if body.startswith(_META, at):
        at = _end_of_value(body, at + len(_META)) + 1
    return at + len(_DATA)


def _end_of_value(body: str, begin: int) -> int:
    """Return the index behind the compact JSON value that begins here, as a member that others follow."""
    if body[begin] not in '[{"':  # a number or a literal
        return body.index(",", begin)
    level = 0
    for found in _STRUCTURE.finditer(body, begin):
        level += (found[1] is not None) - (found[2] is not None)
        if not level:
            return found.end()
    raise ValueError("the body ends inside a value")


def node_text(body: str) -> str:
    """Return the node that wrote the record, as JSON; empty if not set."""
    return body[len(_NODE) - 1 : _end_of_text(body, len(_NODE)) + 1] if body.startswith(_NODE) else ""


def _end_of_text(body: str, begin: int) -> int:
    """Return the index of the quote that ends the string member whose characters begin here; another one follows."""
    end = body.index(_END, begin)
    while body[end - 1] == "\\" and (end - len(body[begin:end].rstrip("\\")) - begin) % 2:
        end = body.index(_END, end + 1)  # that quote was one of the text
    return end


def _after_node(body: str) -> int:
    """Return the index of the quote that begins the first member after `$node`."""
    return _end_of_text(body, len(_NODE)) + 2 if body.startswith(_NODE) else 1


def _after_tag(body: str, at: int) -> int:
    """Return the index of the first member after `$tag`, which begins at `at`; `at` if another member begins there."""
    return _end_of_text(body, at + len(_TAG)) + 2 if body.startswith(_TAG, at) else at


def tag_text(body: str) -> str:
    """Return the tag of a record, as JSON; empty if it has none."""
    at = _after_node(body)
    return body[at + len(_TAG) - 1 : _end_of_text(body, at + len(_TAG)) + 1] if body.startswith(_TAG, at) else ""


def tag_of(body: str) -> str | None:
    """Return the tag of a record; None if it has none."""
    text = tag_text(body)
    return json.loads(text) if text else None


def content_size(body: str) -> int:
    """Return the UTF-8 bytes of a record's data and meta, as JSON; 0 for an empty body."""
    if not body:
        return 0
    at = _after_tag(body, _after_node(body))
    around = len(_META) + 1 + len(_DATA) if body.startswith(_META, at) else len(_DATA)
    rest = len(body) - at if body.isascii() else len(body[at:].encode())
    return rest - around - 1


def render(seq: int, ts: int, body: str, view: View) -> str:
    """Return a record as JSON, in the form for readers. `ts` is in milliseconds."""
    if view.bare:
        return body[data_begin(body) : -1]
    if view.data and view.meta:
        return f'{{"$seq":{seq},"$ts":{ts},{_without_tag(body) if not view.tags else body[1:]}'
    stored = read_body(body)
    parts = [f'{{"$seq":{seq},"$ts":{ts}']
    if stored.node is not None:
        parts.append(f'"$node":{encoded(stored.node)}')
    if view.tags and stored.tag is not None:
        parts.append(f'"$tag":{encoded(stored.tag)}')
    if view.meta and stored.meta is not None:
        parts.append(f'"meta":{stored.meta}')
    if view.data:
        parts.append(f'"data":{stored.data}')
    return ",".join(parts) + "}"


def _without_tag(body: str) -> str:
    at = _after_node(body)
    end = _after_tag(body, at)
    return body[1:at] + body[end:] if end > at else body[1:]


def read_provenance(path: str) -> Provenance:
    """Return the provenance in the path of a line; an empty path, of a record that no router copied, means 0 hops."""
    hops, _, origin = path.partition(" ")
    return Provenance(int(hops or "0"), origin)


def write_provenance(way: Provenance) -> str:
    """Return the path of a line that stores this provenance."""
    return f"{way.hops} {way.id}" if way.id else str(way.hops)


def new_instance(random: bytes) -> int:
    """Return an instance number for a new topic, made of the first 5 `random` bytes; never 0.

    It tells the topic apart from earlier and later topics of the same name.
    """
    return int.from_bytes(random[:5], "big") >> (40 - _INSTANCE_BITS) or 1


def record_id(instance: int, seq: int, recorded_at: int) -> str:
    """Return the id of a record written to a topic: a UUID version 7 of its time, its topic and its seq.

    It is computed, not stored: always the same, but different if a restored topic assigns the seq to another record.
    `recorded_at` is in microseconds.
    """
    place = instance << _SEQ_BITS | seq & (1 << _SEQ_BITS) - 1
    high, low = place >> _RANDOM_BITS, place & (1 << _RANDOM_BITS) - 1
    value = (recorded_at // 1000 & (1 << 48) - 1) << 80 | 7 << 76 | high << 64 | 2 << 62 | low
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def parse_record_id(text: str) -> RecordId | None:
    """Return the parts of a record id; None if the text does not look like a UUID version 7 in lower case."""
    digits = text.replace("-", "")
    if len(text) != 36 or len(digits) != 32 or not all(digit in _DIGITS for digit in digits) or digits[12] != "7":
        return None
    value = int(digits, 16)
    place = (value >> 64 & (1 << 12) - 1) << _RANDOM_BITS | value & (1 << _RANDOM_BITS) - 1
    return RecordId(place >> _SEQ_BITS, place & (1 << _SEQ_BITS) - 1, value >> 80)


class _Outline(msgspec.Struct, rename="camel"):
    id: str
    type: str
    observed_at: str
    expires_at: str
    source_node: str = ""
    subject: str = ""
    dedupe_key: str = ""
    payload: dict[str, str] = msgspec.field(default_factory=dict)


UNTAGGED = "topic.record"
"""The type of an event that is made of a record without a tag."""

_EVENTS = msgspec.json.Decoder(_Outline)
_NEVER = "0001-01-01T00:00:00Z"


def body_of_event(event: str) -> str:
    """Return the stored form of a record made of an event, which is given in its canonical form.

    Its data is the payload, its meta the id, subject, dedupe key and times. A payload as routers make it of a record,
    just `data` and `meta` as JSON texts, becomes that data and meta again, and the type `UNTAGGED` no tag.
    """
    found = _EVENTS.decode(event)
    node, tag = encoded(found.source_node) if found.source_node else "", encoded(found.type)
    opened = _open(found.payload)
    if opened is not None:
        return join_body(node, "" if found.type == UNTAGGED else tag, *opened)
    facts = {"id": found.id, "subject": found.subject, "dedupeKey": found.dedupe_key, "observedAt": found.observed_at}
    if found.expires_at != _NEVER:
        facts["expiresAt"] = found.expires_at
    meta = {name: value for name, value in facts.items() if value}
    return join_body(node, tag, msgspec.json.encode(found.payload).decode(), msgspec.json.encode(meta).decode())


def _open(payload: dict[str, str]) -> tuple[str, str] | None:
    """Return (data, meta) of a payload that is just these JSON texts, meta empty if missing; None for any other."""
    if "data" not in payload or not payload.keys() <= {"data", "meta"}:
        return None
    try:
        data, meta = (compact(payload[name]) if name in payload else "" for name in ("data", "meta"))
    except ValueError:
        return None
    return data, meta


def compact(text: str) -> str:
    """Return a JSON text without white space between its tokens, and with characters instead of numeric escapes.

    Otherwise it is unchanged. Many clients escape every character outside of ASCII by its number. Raises ValueError if
    the text is not JSON, or nested too deeply.
    """
    try:
        compacted = msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return _ESCAPES.sub(_unescaped, compacted) if "\\u" in compacted else compacted


_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.")
"""Consecutive escapes by number (some characters take two), or any other escape, which is left unchanged."""


def _unescaped(escape: re.Match[str]) -> str:
    """Return a match of `_ESCAPES` as its characters; those that JSON requires to be escaped stay escaped."""
    return encoded(json.loads(f'"{escape[0]}"'))[1:-1] if escape[0].startswith("\\u") else escape[0]
