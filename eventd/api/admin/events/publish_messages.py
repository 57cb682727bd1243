"""The messages of a WebSocket that publishes to a group: those of its client, and the answers to them.

A message of the client is a JSON object with its number `seq` and its `events`, each as in the body of an emit request.
The node sends `{"answers": […]}`, with one answer for each message, in their order; before it ends the connection, it
may send `{"status": …, "error": …}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from eventd.api.admin.events.event_columns import MOST, MOST_VALUES, PlainEvent, is_bounded
from eventd.api.bodies.json_shape import require_modest
from eventd.api.errors.codes import API_FORM
from eventd.errors import EventdError, Invalid

_Number = Annotated[int, Meta(ge=0, lt=1 << 53)]


class UnnumberedMessage(Invalid):
    """A message cannot be answered, because it has no number. The connection ends."""


class PublishMessage(NamedTuple):
    """A message: its number, its events (each a `PlainEvent`, or any JSON), and why the node refuses it, if it does."""

    seq: int
    events: list[Any]
    problem: EventdError | None = None


class _Numbered(Struct):
    seq: _Number


class _PlainMessage(_Numbered, forbid_unknown_fields=True):
    """The usual message, whose events all fit `PlainEvent`."""

    events: Annotated[list[PlainEvent], Meta(min_length=1, max_length=MOST)]


class _AnyMessage(_Numbered, forbid_unknown_fields=True):
    events: Annotated[list[Any], Meta(min_length=1, max_length=MOST)]


_NUMBERED: Final = msgspec.json.Decoder(_Numbered)
_PLAIN: Final = msgspec.json.Decoder(_PlainMessage)
_ANY: Final = msgspec.json.Decoder(_AnyMessage)
_FIRST_NUMBER: Final = re.compile(rb'\s{0,9}\{\s{0,9}"seq"\s{0,9}:\s{0,9}(0|[1-9][0-9]{0,15})\s{0,9}[,}]')
"""The number of a message that begins with it."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escaped half of a surrogate pair, of which the decoder takes only whole ones."""


def estimate_events(text: bytes) -> int:
    """Return about the number of events in a message that is not decoded; it has at most twice as many valid ones."""
    return min(MOST, max(1, text.count(b'"type"'), text.count(b"{") // 2))


def read_message(text: bytes, problem: EventdError | None = None) -> PublishMessage:
    """Return a message; one with a number that is otherwise wrong has a `problem`. Raises `UnnumberedMessage`.

    `problem`: an error of the node, for which it refuses the message undecoded.
    """
    if problem is not None:
        return PublishMessage(_read_number(text), [], problem)
    if is_bounded(text):
        try:
            plain = _PLAIN.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return PublishMessage(plain.seq, plain.events)
    if (refused := _find_unreadable(text)) is not None:
        return refused
    seq = _read_number(text)
    try:
        require_modest(text, MOST_VALUES, "message")
        return PublishMessage(seq, _ANY.decode(text).events)
    except EventdError as error:
        return PublishMessage(seq, [], error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return PublishMessage(seq, [], Invalid(f"the message is not valid: {_why(error)}"))


def _find_unreadable(text: bytes) -> PublishMessage | None:
    """Return a message that begins with its number and may be JSON, but that the decoder does not take."""
    first = _FIRST_NUMBER.match(text)
    if first is None or (number := int(first[1])) >= 1 << 53:
        return None
    try:
        _NUMBERED.decode(text)
    except RecursionError:
        return PublishMessage(number, [], Invalid("the message is nested too deep"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _SURROGATE.search(text) is None:
            return None
        problem = Invalid(f"the message is not valid: {error}", hint="write no half of a surrogate pair")
        return PublishMessage(number, [], problem)
    return None


def _read_number(text: bytes) -> int:
    try:
        return _NUMBERED.decode(text).seq
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnnumberedMessage(
            f"a message is not a JSON object with a number: {_why(error)}",
            hint='send {"seq": 1, "events": […]}',
        ) from None


def _why(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def refusal(seq: int, error: EventdError) -> Mapping[str, Any]:
    """Return the answer to a message of which nothing is stored."""
    return {"seq": seq, **_problem(error)}


def write_answers(answers: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the message of the node with these answers."""
    return msgspec.json.encode({"answers": answers})


def write_end(error: EventdError) -> bytes:
    """Return the last message of a connection that the node ends."""
    return msgspec.json.encode(_problem(error))


def _problem(error: EventdError) -> dict[str, Any]:
    """Return the body of the answer that a request with this error gets, with its status as a member."""
    return {"status": API_FORM.status(error), **API_FORM.body(error)}
