"""Events of a large request as JSON texts: all are checked before any is kept in decoded form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Raw

from eventd.api.admin.events.emitted import BadEvents, EventProblem, EventsTooLarge, drafts_from
from eventd.api.admin.events.event_columns import PlainEvent
from eventd.errors import Invalid
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.reading.problems import MOST_FOUND

_EVENTS: Final = 256
_BYTES: Final = 1 << 20
"""Maximum number of events, and of bytes of their texts, that are decoded and checked together."""
_LOOKED_AT: Final = 64 << 10
"""Number of bytes of a text that are copied at a time to be counted."""
_EVENT: Final = msgspec.json.Decoder(PlainEvent)


def are_texts(events: Sequence[Any]) -> bool:
    """Return whether the events are undecoded texts (`Raw`); False for no events."""
    return bool(events) and isinstance(events[0], Raw)


def decode_texts(events: list[Any], group: GroupConfig, *, now: int, random: Callable[[int], bytes]) -> None:
    """Replace each text by its decoded event, once all of them have been found valid. `now` in microseconds.

    Raises `Invalid` for bytes that are not JSON in UTF-8, BadEvents and EventsTooLarge as `drafts_from` does.
    """
    problems: list[EventProblem] = []
    large: list[EventProblem] = []
    for start, piece in _pieces(events):
        if len(problems) + len(large) >= MOST_FOUND:
            break
        try:
            _require_small(piece, group)
            drafts_from([_decode(text, start + at) for at, text in enumerate(piece)], group, now=now, random=random)
        except BadEvents as error:
            problems += _shifted(error.problems, start)
        except EventsTooLarge as error:
            large += _shifted(error.problems, start)
    if problems:
        raise BadEvents([*islice(sorted(problems + large), MOST_FOUND)], len(events))
    if large:
        raise EventsTooLarge(large[:MOST_FOUND], len(events))
    for index, text in enumerate(events):
        events[index] = _decode(text, index)


def _pieces(texts: Sequence[Raw]) -> Iterator[tuple[int, Sequence[Raw]]]:
    """Yield all texts in order, in pieces of a bounded size or one text, each with the index of its first text."""
    start = size = 0
    for index, text in enumerate(texts):
        if index - start >= _EVENTS or (size + len(text) > _BYTES and index > start):
            yield start, texts[start:index]
            start, size = index, 0
        size += len(text)
    yield start, texts[start:]


def _decode(text: Raw, index: int) -> Any:
    """Return a `PlainEvent`, or any other JSON value as such. Raises `Invalid` for bytes that are not JSON in UTF-8."""
    try:
        with suppress(msgspec.ValidationError):
            return _EVENT.decode(text)
        return msgspec.json.decode(text)
    except UnicodeDecodeError:
        raise Invalid(f"the body is not valid JSON: event {index} holds bytes that are not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"the body is not valid JSON: event {index}: {error}") from None


def _require_small(texts: Sequence[Raw], group: GroupConfig) -> None:
    """Raise EventsTooLarge if an event exceeds twice the group's limit for one event, before any is decoded."""
    most = group.limits.max_event_bytes
    sizes = [(index, _least_bytes(text)) for index, text in enumerate(texts) if len(text) > 2 * most]
    words = f"bytes or more are over the limit of {most} of group {group.name}"
    if far := [EventProblem(index, f"{size} {words}") for index, size in sizes if size > 2 * most]:
        raise EventsTooLarge(far, len(texts))


def _least_bytes(text: Raw) -> int:
    """Return a lower bound of the text's bytes without white space, with escapes replaced by their characters."""
    whole, size = memoryview(text), len(text)
    for start in range(0, len(text), _LOOKED_AT):
        part = bytes(whole[start : start + _LOOKED_AT])
        size -= sum(map(part.count, (b" ", b"\n", b"\r", b"\t", b"\\"))) + 5 * part.count(b"\\u")
    return size


def _shifted(problems: Sequence[EventProblem], by: int) -> list[EventProblem]:
    return [EventProblem(problem.index + by, problem.message) for problem in problems]
