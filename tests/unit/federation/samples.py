"""Events, keys and requests for tests, and hypothesis strategies for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from federation.event import UNSET, WHITE_SPACE, Event
from federation.keys import Key, KeyRing
from federation.peers import SECOND
from federation.ranges import Range
from federation.signing import Receiver, Request, SignedRequest, sign_request
from federation.wire import BatchHeader

NOW = 1_780_142_400 * SECOND
NONCE = "n" * 22
BATCH_ID = "019e78a1-7000-7abc-8def-0123456789ab"
SEEN = datetime(2026, 5, 30, 11, 59, 58, 250_000, tzinfo=UTC)
KEY = Key.hmac("k", "secret")
RECEIVER = Receiver("b", "edge", KeyRing([KEY]))


def _spelled(y: int, sign: int) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


_P = 2**255 - 19
_ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
WEAK_KEYS = [
    _spelled(y, sign)
    for y in (
        0,
        1,
        _P - 1,
        _ORDER_8,
        _P - _ORDER_8,
        _P,
        _P + 1,
        _P + 18,
    )
    for sign in (0, 1)
]
"""All encodings of points of small order, and some that are not canonical."""


def make_event(id: str = "evt-1", **fields: Any) -> Event:
    values = {"group": "edge", "source_node": "a", "type": "t", "dedupe_key": id, "observed_at": SEEN}
    return Event(id=id, **(values | fields))


def make_header(**fields: Any) -> BatchHeader:
    claim = Range(epoch="e", incarnation=0, after=0, upto=100)
    values = {"from_node": "a", "to_node": "b", "group": "edge", "batch_id": BATCH_ID, "range": claim}
    return BatchHeader(**(values | fields))


def sign(body: bytes, header: BatchHeader | None = None, key: Key = KEY) -> SignedRequest:
    return sign_request(header or make_header(), body, key, now=NOW, nonce=NONCE)


def as_request(signed: SignedRequest, body: bytes) -> Request:
    return Request("POST", signed.header.path, signed.headers, body)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
edged = texts.map(lambda text: text.strip(WHITE_SPACE))
required = edged.filter(bool)
times = st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC))
events = st.builds(
    Event,
    id=required,
    group=required,
    source_node=edged,
    type=required,
    subject=edged,
    dedupe_key=required,
    payload=st.dictionaries(texts, texts, max_size=4),
    observed_at=times,
    expires_at=st.just(UNSET) | times,
)
