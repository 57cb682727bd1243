"""The JSON messages of a stream. A message is one object; unknown members are ignored.

There are two dialects, distinguished by the type of each request's id. If the id is a number, each kind of answer has
a type of its own. If it is a text, success is answered by `ok`, failure by `error`, and names that are left out have
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from operator import attrgetter, is_not
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from eventd.errors import Invalid
from eventd.streams.base64_text import read_bytes
from eventd.streams.names import DEFAULT
from eventd.text.duplicate_keys import member_names, require_once

DEEPEST: Final = 64
"""Maximum depth of arrays and objects in a message, in unknown members, too."""
_MOST: Final = 2**64 - 1
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")

Whole = Annotated[int, Meta(ge=0)]
RequestId = Whole | Annotated[str, Meta(max_length=256)]
AckMode = Literal["none", "per_message", "per_batch"]


class BadMessage(ValueError):
    """A payload that is not a message; the text of the error is sent as the answer."""


class Message(Struct, tag_field="type", omit_defaults=True):
    """Base of a message. Optional members are left out unless they are set."""


class At(Struct):
    """A position in a stream: the offset of the first event that a subscriber has not seen."""

    offset: Whole


# --- requests -------------------------------------------------------------------------------------------------------


class AuthRequest(Message, tag="auth", kw_only=True):
    """The first message of a stream. `client_flags` are those that the client knows; `ext` names extensions."""

    tenant_id: str
    token: str
    client_flags: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None
    ext: list[str] | None = None
    session: str | None = None


class PublishRequest(Message, tag="publish", kw_only=True):
    """Publish one record; `payload` is base64."""

    tenant_id: str | None = None
    namespace: str | None = None
    stream: str
    payload: str
    request_id: RequestId | None = None
    ack: AckMode | None = None


class PublishBatchRequest(Message, tag="publish_batch", kw_only=True):
    """Publish several records; `payloads` are base64."""

    tenant_id: str | None = None
    namespace: str | None = None
    stream: str
    payloads: list[str]
    request_id: RequestId | None = None
    ack: AckMode | None = None


class SubscribeRequest(Message, tag="subscribe", kw_only=True):
    """Subscribe to a stream. Without `start` from its end on.

    `epoch` is that of the log that the client knows; `on_gap` says what happens if events are missing; `skip_behind`:
    more events than that behind, the subscription jumps to the end.
    """

    tenant_id: str | None = None
    namespace: str | None = None
    stream: str
    subscription_id: Whole | None = None
    start: Literal["latest", "earliest"] | At | None = None
    request_id: RequestId | None = None
    epoch: str | None = None
    on_gap: Literal["error", "tell"] | None = None
    skip_behind: Whole | None = None


class CachePutRequest(Message, tag="cache_put", kw_only=True):
    """Store a value, in base64, for `ttl_ms` milliseconds; None: for ever."""

    tenant_id: str | None = None
    namespace: str | None = None
    cache: str | None = None
    key: str
    value: str
    request_id: RequestId | None = None
    ttl_ms: Whole | UnsetType | None = UNSET  # null is written


class CacheGetRequest(Message, tag="cache_get", kw_only=True):
    """Read a value."""

    tenant_id: str | None = None
    namespace: str | None = None
    cache: str | None = None
    key: str
    request_id: RequestId | None = None


Scoped = PublishRequest | PublishBatchRequest | SubscribeRequest | CachePutRequest | CacheGetRequest
"""A request about a namespace of a tenant."""
Request = AuthRequest | Scoped

# --- answers --------------------------------------------------------------------------------------------------------


class Ok(Message, tag="ok", kw_only=True):
    """The request with this id has succeeded."""

    request_id: RequestId | None = None
    offset: Whole | None = None
    count: Whole | None = None
    durability: str | None = None
    epoch: str | None = None


class AuthOk(Message, tag="auth_ok", kw_only=True):
    """The stream is authenticated; `server_flags` are those that the server knows, `ext` the extensions in force."""

    server_flags: Annotated[int, Meta(ge=0, le=0xFFFF)]
    ext: list[str] | None = None


class Error(Message, tag="error", kw_only=True):
    """A request has failed, or the stream ends."""

    message: str
    request_id: RequestId | None = None


class PublishOk(Message, tag="publish_ok", kw_only=True):
    """Records are stored, as safely as `durability` says; `offset` is that of the first of `count`."""

    request_id: Whole
    offset: Whole | None = None
    count: Whole | None = None
    durability: str | None = None
    epoch: str | None = None


class PublishError(Message, tag="publish_error", kw_only=True):
    """Nothing was written."""

    request_id: Whole
    message: str


class Subscribed(Message, tag="subscribed", kw_only=True):
    """A subscription has begun at the event `offset`, so that it can be resumed there even before its first event has
    arrived."""

    subscription_id: Whole
    offset: Whole | None = None
    epoch: str | None = None


class SubscribeCursorError(Message, tag="subscribe_cursor_error", kw_only=True):
    """The event with the offset `requested` is not stored; `available` is the nearest offset whose event is."""

    reason: Literal["too_old", "in_future"]
    requested: Whole
    available: Whole
    epoch: str | None = None


class EventStreamHello(Message, tag="event_stream_hello", kw_only=True):
    """The first message of the stream of a subscription's events."""

    subscription_id: Whole


class EventMessage(Message, tag="event", kw_only=True):
    """One event; `payload` is base64."""

    tenant_id: str
    namespace: str
    stream: str
    payload: str
    offset: Whole | None = None


class EventBatchMessage(Message, tag="event_batch", kw_only=True):
    """Consecutive events; `payloads` are base64, and the first one has the offset `base_offset`."""

    tenant_id: str
    namespace: str
    stream: str
    payloads: list[str]
    base_offset: Whole | None = None


class GapMessage(Message, tag="gap", kw_only=True):
    """The events with the offsets `from` to `to` will never come. `epoch`: of the events that follow, if it is new."""

    subscription_id: Whole
    first: Whole = msgspec.field(name="from")
    to: Whole
    reason: str
    missed: Whole
    epoch: str | None = None


class CacheValue(Message, tag="cache_value", kw_only=True):
    """The value of a key, in base64; None: there is none."""

    tenant_id: str
    namespace: str
    cache: str
    key: str
    value: str | None
    request_id: RequestId | None = None


class CacheOk(Message, tag="cache_ok", kw_only=True):
    """The value of the request with this id is stored."""

    request_id: Whole


Answer = (
    Ok
    | AuthOk
    | Error
    | PublishOk
    | PublishError
    | Subscribed
    | SubscribeCursorError
    | EventStreamHello
    | EventMessage
    | EventBatchMessage
    | GapMessage
    | CacheValue
    | CacheOk
)

_MESSAGES: Final = msgspec.json.Decoder(Request | Answer)
_ANSWERS: Final = msgspec.json.Decoder(Answer)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TYPES: Final = frozenset(
    str(msgspec.inspect.type_info(kind).tag)  # type: ignore[attr-defined]
    for kind in (*Request.__args__, *Answer.__args__)
)


def read_message(payload: bytes) -> Request | Answer:
    """Decode a message of either side. Raises `BadMessage`."""
    try:
        payload.isascii() or payload.decode()  # the decoder does not look into unknown members
        message: Request | Answer = _MESSAGES.decode(payload)
        if _depth_is_over(payload, DEEPEST):
            raise BadMessage("malformed message")
        fields = _fields(type(message))
        values = fields.values(message)
        if not _is_plainly_once(payload, values, fields.defaults):
            require_once(payload, message)
            if _gives_type_twice(payload):
                raise BadMessage("malformed message")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Invalid):
        raise BadMessage("unknown message type" if _is_unknown(payload) else "malformed message") from None
    for value in values:  # the decoder does not refuse numbers of more than 64 bits
        number = value.offset if value.__class__ is At else value
        if number.__class__ is int and number > _MOST:
            raise BadMessage("malformed message")
    return message


def read_answer(payload: bytes) -> Answer:
    """Decode an answer, for clients: messages of a server are read without the checks that requests need.

    Raises `BadMessage`.
    """
    try:
        answer: Answer = _ANSWERS.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadMessage("malformed message") from None
    return answer


def write_message(message: Message) -> bytes:
    """Return a message as compact JSON, its type first."""
    return msgspec.json.encode(message)


def read_payload(text: str) -> bytes:
    """Return the bytes of a payload or value, which must be canonical base64. Raises `BadMessage`."""
    try:
        return read_bytes(text)
    except ValueError:
        raise BadMessage("malformed message") from None


def _is_unknown(payload: bytes) -> bool:
    """Return whether the payload is an object with a `type` that no message has."""
    try:
        kind = msgspec.json.decode(_MEMBERS.decode(payload).get("type", b"null"), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return kind not in _TYPES


class _Fields(NamedTuple):
    """The fields of a message: a function that returns all their values in one call, and the default of each."""

    values: Callable[[Message], tuple[Any, ...]]
    defaults: tuple[object, ...]


@cache
def _fields(kind: type[Message]) -> _Fields:
    fields = msgspec.structs.fields(kind)
    names = [field.name for field in fields]
    values = attrgetter(*names) if len(names) > 1 else lambda message: (getattr(message, names[0]),)
    return _Fields(values, tuple(field.default for field in fields))


def _is_plainly_once(payload: bytes, values: tuple[Any, ...], defaults: tuple[object, ...]) -> bool:
    """Return whether it is certain, without parsing again, that no member occurs twice: most messages are so plain.

    Without nested objects and escapes, a quote before a colon ends a name. A field that differs from its default was
    given; if there are as many names as such fields, and the type, no name occurs twice.
    """
    if b"\\" in payload or payload.count(b"{") > 1:
        return False
    if b" :" in payload or b"\t:" in payload or b"\n:" in payload or b"\r:" in payload:
        return False
    return payload.count(b'":') == sum(map(is_not, values, defaults)) + 1


def _gives_type_twice(payload: bytes) -> bool:
    if payload.count(b'"type"') < 2 and b"\\u00" not in payload:
        return False
    return member_names(payload).count("type") > 1


def _depth_is_over(payload: bytes, most: int) -> bool:
    """Return whether a valid JSON text is nested deeper than `most`; no bracket costs a step in Python."""
    if payload.count(b"[") + payload.count(b"{") <= most:
        return False
    steps = memoryview(_TEXT.sub(b"", payload).translate(_STEPS, _OTHERS)).cast("b")  # 1 and -1
    return max(accumulate(steps)) > most


def is_named(request: Scoped) -> bool:
    """Return whether the id of a request is a text."""
    return isinstance(request.request_id, str)


def require_names(request: Scoped) -> None:
    """Raise `BadMessage` if a name is missing; if the id of the request is a text, fill in the defaults instead.

    In that case a missing tenant stays None, which stands for the tenant of the stream.
    """
    names = ["namespace"]
    if isinstance(request, CachePutRequest | CacheGetRequest):
        names.append("cache")
    missing = [name for name in names if getattr(request, name) is None]
    if is_named(request):
        for name in missing:
            setattr(request, name, DEFAULT)
    elif missing or request.tenant_id is None:
        raise BadMessage("malformed message")
