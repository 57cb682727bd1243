"""Streams over QUIC: frames in any pieces, messages, layouts of payloads, tokens and key sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.streams.base64_text import decode_url, encode_url, read_bytes, write_bytes
from eventd.streams.frames import BadFrame, Flags, Frame, StreamFrameReader, encode_frame
from eventd.streams.issuer_tokens import read_issuer_keys, verify_issuer_token
from eventd.streams.layouts import (
    BadLayout,
    EventBatch,
    PublishAck,
    PublishBatch,
    read_ack,
    read_acknowledged,
    read_events,
    read_publish,
    write_ack,
    write_events,
    write_publish,
)
from eventd.streams.messages import BadMessage, read_answer, read_message, write_message
from eventd.streams.payloads import payload_of, payloads_of, record_of, texts_of
from eventd.streams.permissions import BadPermission, StreamAction, matches, read_permissions
from eventd.streams.tokens import BadKeySet, BadToken, StreamKey, StreamToken, key_id_of, read_key_set, sign, verify
from tests.fuzz.target import FuzzTarget, pieces

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEYS = [StreamKey("k", KEY.public_key())]
NOW = 1780142400
_HEADER = 12


def _frames(parts: Iterable[bytes]) -> tuple[list[Frame], str, int]:
    reader = StreamFrameReader(most=256)
    found: list[Frame] = []
    held = 0
    try:
        for part in parts:
            for frame in reader.feed(part):
                found.append(frame)  # noqa: PERF402 — those before an error count
            held = max(held, reader.held)
    except BadFrame as error:
        return found, str(error), held
    return found, "", held


def check_frames(data: bytes) -> None:
    whole, error, _ = _frames([data[8:]])
    split, same, held = _frames(pieces(data))
    assert (split, same) == (whole, error)
    assert held <= 256 + _HEADER + 64
    written = b"".join(encode_frame(*frame) for frame in whole)
    assert data[8:].startswith(written)


def check_message(data: bytes) -> None:
    with suppress(BadMessage):
        message = read_message(data)
        assert read_message(write_message(message)) == message
    with suppress(BadMessage):
        answer = read_answer(data)
        assert read_answer(write_message(answer)) == answer


def check_layout(data: bytes) -> None:
    with suppress(BadLayout):
        batch = read_publish(data)
        assert data.startswith(write_publish(batch)[_HEADER:])
        acknowledged = read_acknowledged(write_publish(batch, 7)[_HEADER:])
        assert acknowledged.request_id == 7
        assert read_publish(acknowledged.body) == batch
    with suppress(BadLayout):
        read_publish(read_acknowledged(data).body)
    with suppress(BadLayout):
        ack = read_ack(data)
        written = read_ack(write_ack(ack)[_HEADER:])
        assert written == ack or len(ack.message.encode()) > 512
    for flags in (Flags.EVENTS, Flags.SHARED_EVENTS, Flags.EVENTS | Flags.OFFSETS, Flags.SHARED_EVENTS | Flags.OFFSETS):
        with suppress(BadLayout):
            assert data.startswith(write_events(read_events(flags, data))[_HEADER:])


def check_payloads(data: bytes) -> None:
    """A payload is kept as a record and comes back byte for byte, alone and with others."""
    payloads = [data, *pieces(data)]
    records = [record_of(payload) for payload in payloads]
    assert [payload_of(record) for record in records] == payloads
    assert payloads_of(records) == payloads
    assert texts_of(payloads).texts == records
    assert texts_of(payloads).sizes == [len(record.encode()) for record in records]
    text = data.decode("latin-1")
    for read, write in ((read_bytes, write_bytes), (decode_url, encode_url)):
        with suppress(ValueError):
            assert write(read(text)) == text


def check_token(data: bytes) -> None:
    """A token as it comes, and the same header and claims with the right signature."""
    text = data.decode("latin-1")
    key_id_of(text)
    head, _, rest = text.partition(".")
    body = rest.partition(".")[0]
    signed = f"{encode_url(head.encode())}.{encode_url(body.encode())}"
    for token in (text, f"{signed}.{encode_url(KEY.sign(signed.encode()))}"):
        with suppress(BadToken):
            found = verify(token, "t", KEYS, NOW)
            assert found.tenant == "t"
            assert found.expires_at >= NOW - 60
        with suppress(BadToken):
            verify_issuer_token(token, "i", "a", (), NOW)


def check_key_set(data: bytes) -> None:
    for read in (read_key_set, read_issuer_keys):
        with suppress(BadKeySet):
            found = read(data)
            assert len(found.keys) <= 100
    with suppress(BadPermission):
        for permission in read_permissions(data.decode("utf-8", "replace").split("\n")):
            assert permission.action in StreamAction
            assert matches(permission.pattern, permission.pattern.replace("*", "x/y"))


def frame_seeds() -> Iterable[bytes]:
    yield b"\3\50\1\2\7\11\77\0" + encode_frame(Flags.EVENTS, b"payload") + encode_frame(0, b"{}") + b"FLX1"


def message_seeds() -> Iterable[bytes]:
    yield b'{"type":"auth","tenant_id":"t","token":"x","client_flags":63,"ext":["a"]}'
    yield b'{"type":"publish_batch","stream":"s","payloads":["aGk="],"request_id":7,"ack":"per_batch"}'
    yield b'{"type":"subscribe","stream":"s","start":{"offset":7},"epoch":"e"}'
    yield b'{"type":"cache_put","cache":"c","key":"k","value":"aGk=","request_id":"r"}'
    yield b'{"type":"event_batch","payloads":[],"base_offset":3}'
    yield b'{"type":"gap"}'


def layout_seeds() -> Iterable[bytes]:
    batch = PublishBatch("t", "n", "s", [b"abc", b"de", b""])
    yield write_publish(batch)[_HEADER:]
    yield write_publish(batch, 5)[_HEADER:]
    yield write_ack(PublishAck(7, True, "é"))[_HEADER:]
    yield write_events(EventBatch([b"aa", b"bb"], 3, 9))[_HEADER:]


def payload_seeds() -> Iterable[bytes]:
    yield from (b'\3\2\1\1\1\1\1\1text \xc3\xa9\n"\\', b"\xff\xfe\0", b'{"$b64":"aGk="}', b"aGVsbG8=")


def token_seeds() -> Iterable[bytes]:
    yield sign(KEY, "k", StreamToken("s", "t", NOW + 60, (), "k"), NOW).encode()
    claims = {"iss": "felix-auth", "aud": "felix-broker", "sub": "s", "tid": "t", "exp": NOW, "perms": ["cache.read:*"]}
    yield b'{"alg":"EdDSA","kid":"k"}.' + json.dumps(claims).replace(".", "\\u002e").encode()


def key_seeds() -> Iterable[bytes]:
    x = encode_url(KEY.public_key().public_bytes_raw())
    yield b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"' + x.encode() + b'"}]}'
    yield b'{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}'
    yield b"stream.publish:stream:t/n/*\nrbac.view:x"


_CLAIMS = ('"iss":"felix-auth"', '"aud":"felix-broker"', '"tid":"t"', '"exp":1780142400', '"perms":[', '"nbf":')
TARGETS = (
    FuzzTarget("stream-frames", check_frames, frame_seeds, ("FLX1",)),
    FuzzTarget("stream-messages", check_message, message_seeds, ('"type":"', '"request_id":', '"offset":', "\\u00")),
    FuzzTarget("stream-layouts", check_layout, layout_seeds),
    FuzzTarget("stream-payloads", check_payloads, payload_seeds, ('{"$b64":"',)),
    FuzzTarget("stream-tokens", check_token, token_seeds, _CLAIMS),
    FuzzTarget("key-sets", check_key_set, key_seeds, ('"kty":"RSA"', '"kty":"EC"', '"crv":"P-256"', '"n":"', '"e":"')),
)
