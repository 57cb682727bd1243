"""Signs and verifies the requests and answers of v2: what each signature covers, see `message_signature`.

A request's signature covers

* the method, the path, and the body with its type, by its digest,
* the sending node, the receiving node and the group,
* of a batch, its id and range, and
* the time of signing and of expiry, and a nonce.

So a captured request is useless at another node, in another group, or later. The answer's signature covers the
signature of the request, so an answer is valid for one attempt only. Time and nonces come from the caller, which also
stores the nonces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federation.components import Components, cover
from federation.errors import (
    BadAnswer,
    ClockSkew,
    Forbidden,
    Malformed,
    NotFound,
    TooLarge,
    Unauthorized,
    UnsupportedMedia,
    WrongGroup,
    WrongMethod,
    WrongSender,
)
from federation.keys import Key, KeyRing
from federation.message_signature import (
    check_signature,
    content_digest_header,
    digest_text,
    lower_names,
    other_body,
    read_signature,
    sign_message,
)
from federation.peers import (
    ANSWER_TAG,
    BATCH_HEADER,
    DEFAULT_WINDOW,
    FROM_HEADER,
    GROUP_HEADER,
    IDENTITY,
    JSON_TYPE,
    LABEL,
    RANGE_HEADER,
    REQUEST_TAG,
    SECOND,
    TO_HEADER,
    Limits,
)
from federation.structured import (
    Item,
    Params,
    Value,
    write_value,
)
from federation.wire import KINDS, BatchHeader, HistoryQuery, LinkQuery, StatusQuery, VerifyQuery, read_header

NONCE: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")

_LINK_PARTS: Final = (
    "@method",
    "@path",
    "content-digest",
    "content-type",
    "content-encoding",
    FROM_HEADER.lower(),
    TO_HEADER.lower(),
    GROUP_HEADER.lower(),
)


_PARTS: Final[dict[type[LinkQuery], Components]] = {
    LinkQuery: cover(tuple(Item(name, {}) for name in _LINK_PARTS)),
    VerifyQuery: cover(tuple(Item(name, {}) for name in _LINK_PARTS)),
    StatusQuery: cover(tuple(Item(name, {}) for name in _LINK_PARTS)),
    HistoryQuery: cover(tuple(Item(name, {}) for name in _LINK_PARTS)),
    BatchHeader: cover(tuple(Item(name, {}) for name in (*_LINK_PARTS, BATCH_HEADER.lower(), RANGE_HEADER.lower()))),
}
_ANSWER_PARTS: Final = cover(
    (
        Item("@status", {}),
        Item("content-type", {}),
        Item("content-digest", {}),
        Item("signature", {"req": True, "key": LABEL}),
    )
)
_REQUEST_SIGNATURE: Final = _ANSWER_PARTS.names[-1]
_REQUEST_PARAMS: Final = frozenset({"created", "expires", "nonce", "keyid", "alg", "tag"})
_ANSWER_PARAMS: Final = frozenset({"created", "keyid", "alg", "tag"})
MOST_QUOTED: Final = 80
"""Maximum characters of a name in a request that an error quotes."""


class Head(NamedTuple):
    """A request without its body. `path` is the whole request target; with a query it is a different path.

    `headers` are pairs, in which a name may repeat, or a mapping.
    """

    method: str
    path: str
    headers: Mapping[str, str] | Iterable[tuple[str, str]]


class Request(NamedTuple):
    """A whole request: the members of its `Head`, and the body."""

    method: str
    path: str
    headers: Mapping[str, str] | Iterable[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiving node and group. `window`: its replay window in microseconds; fractions of a second are ignored."""

    node: str
    group: str
    keys: KeyRing
    window: int = DEFAULT_WINDOW
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request to send, without its body; `signature` is what its answer must cover, as text `:…:`."""

    header: LinkQuery
    headers: dict[str, str]
    digest: str
    signature: str


class StoredAnswer(NamedTuple):
    """A stored answer, with everything that its signature covers.

    `request` is the signature of the request, as text `:…:`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    request: str


@dataclass(frozen=True, slots=True)
class VerifiedRequest:
    """A request that is proven to come from `header.from_node`, once its body has the `digest`.

    `nonce` must be stored, per key id, until `nonce_until` (microseconds), in the transaction that stores the effect.
    `created` is when it was signed by the sender's clock (seconds since 1970).
    """

    header: LinkQuery
    key: Key
    digest: str
    signature: str
    nonce: str
    nonce_until: int
    created: int


def sign_request(
    header: LinkQuery, body: bytes, key: Key, *, now: int, nonce: str, window: int = DEFAULT_WINDOW
) -> SignedRequest:
    """Sign a request and return it with all its headers, valid for `window` from `now` (both in microseconds).

    `nonce` is new for every attempt: 16 to 64 letters, digits, _ and -.
    """
    if not NONCE.fullmatch(nonce):
        raise Malformed("a nonce must be 16 to 64 letters, digits, _ and -")
    headers = {
        "Content-Type": header.content_type,
        "Content-Encoding": IDENTITY,
        "Content-Digest": content_digest_header(body),
        **header.to_headers(),
    }
    created = now // SECOND
    params: Params = {
        "created": created,
        "expires": created + window // SECOND,
        "nonce": nonce,
        "keyid": key.id,
        "alg": key.algorithm.value,
        "tag": REQUEST_TAG,
    }
    values = {"@method": "POST", "@path": header.path} | lower_names(headers)
    signature = sign_message(headers, _PARTS[type(header)], params, values, key)
    return SignedRequest(header, headers, headers["Content-Digest"], signature)


def verify_request(request: Request, receiver: Receiver, *, now: int) -> VerifiedRequest:
    """Verify a whole request, in the order that reveals least to senders outside of the group.

    A node calls `verify_head` and `check_body` instead, because it reads the body between them.

    Raises NotFound, WrongMethod, TooLarge, UnsupportedMedia, Unauthorized (the exact cause in `.reason`), Forbidden,
    ClockSkew, Malformed.
    """
    head = Head(request.method, request.path, request.headers)
    _kind(head)
    check_size(len(request.body), receiver.limits)
    verified = verify_head(head, receiver, now=now)
    check_body(verified, request.body)
    return verified


def check_size(size: int, limits: Limits) -> None:
    """Raise TooLarge if a body of `size` bytes is over the limit of a batch."""
    if size > limits.batch_bytes:
        raise TooLarge(f"a body has at most {limits.batch_bytes} bytes", limit=limits.batch_bytes, unit="bytes")


def verify_head(head: Head, receiver: Receiver, *, now: int) -> VerifiedRequest:
    """Verify everything in a request except its body, before the body is read.

    Raises like `verify_request`, without TooLarge.
    """
    kind = _kind(head)
    values = {"@method": head.method, "@path": head.path} | lower_names(head.headers)
    if values.get("content-type") not in kind.takes or values.get("content-encoding") != IDENTITY:
        raise UnsupportedMedia(f"{head.path} takes {' or '.join(kind.takes)} with Content-Encoding: {IDENTITY}")
    signed = read_signature(values, _PARTS[kind], _REQUEST_PARAMS, REQUEST_TAG)
    nonce = signed.text("nonce")
    if not NONCE.fullmatch(nonce):
        raise Unauthorized("the nonce is not 16 to 64 letters, digits, _ and -", reason="parameters")
    key, digest = check_signature(signed, values, receiver.keys)
    _check_audience(values, receiver, key)
    until = _check_time(signed.params, receiver.window, now)
    header = read_header(head.path, values)
    created = int(signed.params["created"])
    return VerifiedRequest(header, key, digest_text(digest), write_value(signed.signature), nonce, until, created)


def check_body(request: VerifiedRequest, body: bytes) -> None:
    """Raise Unauthorized unless this is the signed body."""
    if content_digest_header(body) != request.digest:
        raise other_body()


def sign_answer(request: VerifiedRequest, status: int, body: bytes, key: Key, *, now: int) -> dict[str, str]:
    """Return the headers of a JSON answer to a verified request, with its signature, which covers the request's."""
    headers = {"Content-Type": JSON_TYPE, "Content-Digest": content_digest_header(body)}
    params: Params = {"created": now // SECOND, "keyid": key.id, "alg": key.algorithm.value, "tag": ANSWER_TAG}
    values = {"@status": str(status), _REQUEST_SIGNATURE: request.signature} | lower_names(headers)
    sign_message(headers, _ANSWER_PARTS, params, values, key)
    return headers


def verify_answer(
    request: SignedRequest,
    status: int,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes,
    keys: KeyRing,
) -> Key:
    """Verify that an answer to exactly this request comes from its receiver. Returns the key that signed the answer.

    Raises BadAnswer, the exact cause in `.reason`.
    """
    answer = StoredAnswer(status, lower_names(headers), body, request.signature)
    return verify_stored(answer, request.header.to_node, keys)


def verify_stored(answer: StoredAnswer, peer: str, keys: KeyRing) -> Key:
    """Verify that `peer` has signed an answer, from its stored parts.

    Returns the key that signed the answer. The caller must check that the answer's body belongs to the sender's
    request. Raises BadAnswer, the exact cause in `.reason`.
    """
    values = {"@status": str(answer.status), _REQUEST_SIGNATURE: answer.request} | lower_names(answer.headers)
    try:
        signed = read_signature(values, _ANSWER_PARTS, _ANSWER_PARAMS, ANSWER_TAG)
        key, digest = check_signature(signed, values, keys)
        if digest != hashlib.sha256(answer.body).digest():
            raise other_body()
    except Unauthorized as error:
        raise BadAnswer(f"the answer of {peer} proves nothing: {error.message}", reason=error.reason) from None
    if not key.belongs_to(peer):
        raise BadAnswer(f"the answer is signed with a key that is not {peer}'s", reason="wrong_sender")
    return key


def _kind(head: Head) -> type[LinkQuery]:
    kind = KINDS.get(head.path)
    if kind is None:
        raise NotFound(f"there is no {head.path[:80]!r} here")
    if head.method != "POST":
        raise WrongMethod(f"{head.path} takes POST")
    return kind


def _check_audience(values: Mapping[str, str], receiver: Receiver, key: Key) -> None:
    sender, to, group = (values[name.lower()] for name in (FROM_HEADER, TO_HEADER, GROUP_HEADER))
    if to != receiver.node:
        raise Forbidden(f"this is {receiver.node}, the request is for {to[:MOST_QUOTED]!r}")
    if group != receiver.group:
        raise WrongGroup(f"the group here is {receiver.group}, the request is for {group[:MOST_QUOTED]!r}")
    if sender == receiver.node:
        raise WrongSender(f"the request names its receiver, {receiver.node}, as its sender")
    if not key.belongs_to(sender):
        raise WrongSender(f"key {key.id!r} does not belong to {sender[:MOST_QUOTED]!r}")


def _check_time(params: Mapping[str, Value], window: int, now: int) -> int:
    """Raise ClockSkew unless the request was signed within the window and has not expired, both in whole seconds.

    Returns until when its nonce must be stored (microseconds): a window and a second after the request is last valid.
    """
    created, expires = int(params["created"]), int(params["expires"])
    seconds, reach = now // SECOND, window // SECOND
    if abs(seconds - created) > reach:
        raise ClockSkew(
            f"signed {abs(seconds - created)} s {'ago' if created < seconds else 'ahead'} by the receiver's clock, "
            f"more than the {reach} s allowed",
            reason="stale" if created < seconds else "ahead",
            server_time=now,
        )
    if seconds > expires:
        raise ClockSkew(f"expired {seconds - expires} s ago by the receiver's clock", reason="expired", server_time=now)
    return (min(expires, created + reach) + reach + 1) * SECOND
