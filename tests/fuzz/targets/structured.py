"""Structured fields, ranges and paths: what is read is written so that it is read as the same."""

from __future__ import annotations

from collections.abc import Iterable

from federation.errors import Malformed
from federation.loops import decode_path, encode_path
from federation.ranges import MAX_POSITION, Range
from federation.structured import InnerList, Item, parse_dictionary, write_member
from tests.fuzz.target import FuzzTarget


def check_structured(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        members = parse_dictionary(text)
    except Malformed:
        return
    written = ", ".join(f"{name}={write_member(member)}" for name, member in members.items())
    assert parse_dictionary(written) == members, written
    assert written.isascii()
    assert all(isinstance(member, Item | InnerList) for member in members.values())


def check_range(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        found = Range.from_header(text)
    except Malformed:
        return
    assert 0 <= found.after <= found.upto <= MAX_POSITION
    assert found.lost is None or 0 <= found.lost <= found.after
    assert not found.repair or found.upto == 0
    written = found.to_header()
    assert Range.from_header(written) == found, written
    # The quick way for the usual form must agree with the general one.
    assert Range.from_header(f"{written} ") == found


def check_path(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        path = decode_path(text)
    except Malformed:
        return
    assert encode_path(path) == text
    assert "\n" not in text
    assert "\t" not in text


def structured_seeds() -> Iterable[bytes]:
    yield b'eventd=("@method" "@path" "content-digest");created=1;keyid="a\\"b";alg="hmac-sha256";tag="x"'
    yield b"a=1, b=-2.5;x;y=?0, c=:aGVsbG8=:, d=tok/en, e, f=(1 2 (3)), g=()"
    yield b'sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:, x="";a=*b'


def range_seeds() -> Iterable[bytes]:
    for found in (
        Range(epoch="e1", incarnation=3, after=4, upto=9),
        Range(epoch="e", after=MAX_POSITION, upto=MAX_POSITION, lost=7),
        Range(epoch="e", incarnation=1, repair=True),
    ):
        yield found.to_header().encode()


def path_seeds() -> Iterable[bytes]:
    yield from (b"", b"a", b"a,b,c", b"node-1,node.2")


TARGETS = (
    FuzzTarget("structured-fields", check_structured, structured_seeds, ("created", "keyid", "sha-256", "?1", ";req")),
    FuzzTarget("ranges", check_range, range_seeds, ("epoch=", "incarnation=", "after=", "upto=", "lost=", "repair")),
    FuzzTarget("paths", check_path, path_seeds),
)
