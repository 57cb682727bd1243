"""Protocol v2: heads of requests, and the lists of what a signature covers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from federation.components import cover, signature_base, write_list
from federation.errors import MessageError
from federation.keys import Key, KeyRing
from federation.peers import SECOND
from federation.signing import NONCE, Head, Receiver, Request, sign_request, verify_head, verify_request
from federation.structured import InnerList, parse_dictionary, write_value
from federation.wire import KINDS, LinkQuery
from tests.fuzz.target import FuzzTarget

NOW = 1780142400 * SECOND
SHARED = Key.hmac("shared", "0123456789abcdef0123456789abcdef")
RECEIVER = Receiver("b", "edge", KeyRing([SHARED]))
QUERY = LinkQuery(from_node="a", to_node="b", group="edge")


def check_head(data: bytes) -> None:
    """Lines: method and path, then headers."""
    first, *lines = data.decode("latin-1").split("\n")
    method, _, path = first.partition(" ")
    pairs = [(name, value) for name, colon, value in (line.partition(":") for line in lines) if colon]
    try:
        verified = verify_request(Request(method, path, pairs, b""), RECEIVER, now=NOW)
    except MessageError:
        return
    assert (method, verified.header.to_node, verified.header.group) == ("POST", "b", "edge")
    assert KINDS[path] is type(verified.header)
    given = {name.lower(): value.strip(" \t") for name, value in pairs}
    # Accepted is only what its own sender would write: each header in its one form.
    for name, value in verified.header.to_headers().items():
        assert parse_dictionary(given[name.lower()]) == parse_dictionary(value) if name == "Eventd-Range" else True
        assert name == "Eventd-Range" or given[name.lower()] == value
    assert NONCE.fullmatch(verified.nonce)
    assert verified.nonce_until > NOW


def check_signature_input(data: bytes) -> None:
    """A Signature-Input that the right key signs: only the covered list and its parameters decide."""
    text = data.decode("latin-1")
    sent = sign_request(QUERY, b"", SHARED, now=NOW, nonce="bm9uY2Utb2Ytb25l")
    try:
        member = parse_dictionary(text).get("eventd")
        if not isinstance(member, InnerList):
            return
        parts = cover(member.items)
        values = {"@method": "POST", "@path": QUERY.path} | {name.lower(): v for name, v in sent.headers.items()}
        base = signature_base(parts, write_list(parts, member.params), values)
    except (MessageError, KeyError):
        base = b""
    headers = {**sent.headers, "Signature-Input": text, "Signature": f"eventd={write_value(SHARED.sign(base))}"}
    try:
        verified = verify_head(Head("POST", QUERY.path, headers), RECEIVER, now=NOW)
    except MessageError:
        return
    written = parse_dictionary(sent.headers["Signature-Input"])["eventd"]
    assert isinstance(member, InnerList)
    assert isinstance(written, InnerList)
    assert len(member.items) == len(written.items)
    assert {item.value for item in member.items} == {item.value for item in written.items}
    assert member.params.keys() == written.params.keys()
    assert (member.params["tag"], member.params["keyid"]) == (written.params["tag"], "shared")
    assert abs(verified.created - NOW // SECOND) <= RECEIVER.window // SECOND
    assert int(str(member.params["expires"])) >= NOW // SECOND


def head_seeds() -> Iterable[bytes]:
    folder = Path(__file__).parents[2] / "vectors"
    for name in ("v2-accepted.jsonl", "v2-refused.jsonl"):
        for line in (folder / name).read_text().splitlines()[:40]:
            request = json.loads(line)["request"]
            headers = "".join(f"\n{name}:{value}" for name, value in request["headers"])
            yield f"{request['method']} {request['path']}{headers}".encode("latin-1", "replace")
    sent = sign_request(QUERY, b"", SHARED, now=NOW, nonce="bm9uY2Utb2Ytb25l")
    yield (f"POST {QUERY.path}" + "".join(f"\n{name}:{value}" for name, value in sent.headers.items())).encode()


def input_seeds() -> Iterable[bytes]:
    yield sign_request(QUERY, b"", SHARED, now=NOW, nonce="bm9uY2Utb2Ytb25l").headers["Signature-Input"].encode()


_WORDS = (
    *(
        '"@method"',
        '"@path"',
        '"content-type"',
        '"content-digest"',
        '"eventd-from"',
        '"eventd-to"',
        ";req",
        ";created=",
    ),
    *(";expires=", ";nonce=", ";keyid=", ';alg="hmac-sha256"', ';alg="ed25519"', ";tag=", "eventd=("),
)
TARGETS = (
    FuzzTarget("v2-head", check_head, head_seeds, _WORDS),
    FuzzTarget("signature-input", check_signature_input, input_seeds, _WORDS),
)
