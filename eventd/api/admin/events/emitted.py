"""Validates emitted events and fills in missing members; reports the first problem of each wrong event, by its index.

Almost every request is valid as a whole and is handled by columns (`event_columns`). The others are read event by
event, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import msgspec

from eventd.api.admin.events.event_columns import PlainEvent, convert_events, drafts_of
from eventd.errors import EventdError, Invalid, TooLarge
from eventd.ingress.admission import draft_of
from eventd.log.core.values import Draft, Drafts
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.reading.problems import MOST_FOUND, shorten
from eventd.text.did_you_mean import did_you_mean
from eventd.text.duration import parse_duration
from eventd.text.plural import counted
from eventd.text.quoting import quoted
from federation.errors import MessageError
from federation.event import UNSET, Event, encode, from_micros, micros, new_event_id, normalise
from federation.lenient import parse_time


class EventInput(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An event as a client writes it; missing members are filled in later.

    `recordedAt`, `seq`, `path`, `returned`, `history` and `admittedBy`, which listings show, are accepted and ignored:
    a listing can be emitted elsewhere. An event with a `mark` is not the one to which its id belongs.
    """

    id: str | None = None
    group: str | None = None
    source_node: str | None = None
    type: str | None = None
    subject: str | None = None
    dedupe_key: str | None = None
    payload: dict[str, str] | None = None
    observed_at: str | None = None
    expires_at: str | None = None
    ttl: str | None = None
    recorded_at: Any = None
    seq: Any = None
    path: Any = None
    returned: Any = None
    history: Any = None
    admitted_by: Any = None
    mark: Any = None


_MEMBER_BYTES = 6
"""The shortest member of a payload in JSON, with an empty name and an empty text: `"":"",`."""
MEMBERS = tuple(field.encode_name for field in msgspec.structs.fields(EventInput))


@dataclass(frozen=True, slots=True, order=True)
class EventProblem:
    """A problem of one event; `index`: that of the event in its request, from 0."""

    index: int
    message: str


class BadEvents(Invalid):
    """Some of the request's `of` events are invalid, so none was stored.

    `problems` holds the first problem of each, at most `MOST_FOUND`.
    """

    code = "invalid_events"

    def __init__(self, problems: Sequence[EventProblem], of: int = 1) -> None:
        super().__init__(_summary(problems, of))
        self.problems = tuple(problems)

    @property
    def detail(self) -> list[dict[str, Any]]:
        """Return the problems as JSON: `index` and `message` of each."""
        return [asdict(problem) for problem in self.problems]


class EventsTooLarge(TooLarge):
    """Some events exceed the group's limit for one event, and no other problem was found. No event was stored."""

    code = "events_too_large"

    def __init__(self, problems: Sequence[EventProblem], of: int = 1) -> None:
        hint = "send smaller events, or raise limits.maxEventBytes of the group, here and at its peers"
        super().__init__(_summary(problems, of), hint=hint)
        self.problems = tuple(problems)

    @property
    def detail(self) -> list[dict[str, Any]]:
        """Return the problems as JSON: `index` and `message` of each."""
        return [asdict(problem) for problem in self.problems]


def _summary(problems: Sequence[EventProblem], of: int) -> str:
    if of == 1:
        return f"the event cannot be stored: {problems[0].message}"
    shown = "\n".join(f"  event {problem.index}: {problem.message}" for problem in problems[:20])
    more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
    least = "at least " if len(problems) >= MOST_FOUND else ""
    number = len(problems)
    are = "is" if number == 1 else "are"
    return f"{least}{number:,} of {counted(of, 'event')} {are} wrong, nothing was stored:\n{shown}{more}"


def drafts_from(
    events: Sequence[Any], group: GroupConfig, *, now: int, random: Callable[[int], bytes], heavy: bool = False
) -> Drafts:
    """Return the drafts (the entries to append) of all events, given as `PlainEvent` or decoded JSON.

    Members of a `PlainEvent` may be filled in, even if an error is raised. `heavy`: payloads over the limit are refused
    before a copy, as copies would fill memory. `now` in microseconds. Raises BadEvents or EventsTooLarge, with one
    problem for each wrong event, at most `MOST_FOUND`.
    """
    if heavy and (huge := [*islice(_find_huge(events, group), MOST_FOUND)]):
        raise EventsTooLarge(huge, len(events))
    plain = convert_events(events)
    drafts = None if plain is None else drafts_of(plain, group, now=now, random=random)
    return drafts or Drafts.of(drafts_one_by_one(events, group, now=now, random=random))


def _find_huge(events: Sequence[Any], group: GroupConfig) -> Iterator[EventProblem]:
    """Yield a problem for each event whose payload alone surely exceeds the group's limit for one event; copy none."""
    most = group.limits.max_event_bytes
    for index, event in enumerate(events):
        payload = (
            event.payload if isinstance(event, PlainEvent) else event.get("payload") if isinstance(event, dict) else {}
        )
        if not isinstance(payload, dict):
            continue
        size = len(payload) * _MEMBER_BYTES + sum(len(text) for text in payload.values() if isinstance(text, str))
        if size > most:
            yield EventProblem(index, f"{size} bytes or more are over the limit of {most} of group {group.name}")


def drafts_one_by_one(
    events: Sequence[Any], group: GroupConfig, *, now: int, random: Callable[[int], bytes]
) -> list[Draft]:
    """Return a list of the drafts of all events, each checked individually. Raises as `drafts_from` does."""
    drafts: list[Draft] = []
    problems: list[EventProblem] = []
    large: list[EventProblem] = []
    for index, raw in enumerate(events):
        if len(problems) + len(large) >= MOST_FOUND:
            break
        try:
            event = _event(raw, group, now, random)
            body = encode(event)
        except (MessageError, EventdError) as error:
            problems.append(EventProblem(index, error.message))
            continue
        if len(body) > group.limits.max_event_bytes:
            words = f"{len(body)} bytes are over the limit of {group.limits.max_event_bytes} of group {group.name}"
            large.append(EventProblem(index, words))
        drafts.append(draft_of(event, body.decode(), ""))
    if problems:
        raise BadEvents(sorted(problems + large), len(events))
    if large:
        raise EventsTooLarge(large, len(events))
    return drafts


def _event(raw: Any, group: GroupConfig, now: int, random: Callable[[int], bytes]) -> Event:
    given = _given(raw)
    if given.mark is not None:
        kind = given.mark.get("kind") if isinstance(given.mark, dict) else None
        raise Invalid(f"the event is marked as {str(kind)[:20] if kind else 'refuted or released'}: do not emit it")
    if (given.group or group.name) != group.name:
        raise Invalid(f"group is {given.group}, and this request is for {group.name}")
    observed = parse_time(given.observed_at) if given.observed_at is not None else UNSET
    if observed == UNSET:
        observed = from_micros(now)
    expires = parse_time(given.expires_at) if given.expires_at is not None else UNSET
    if given.ttl is not None:
        if expires != UNSET:
            raise Invalid("ttl and expiresAt both set the expiry: leave one out")
        expires = _expiry(micros(observed), given.ttl)
    event = Event(
        id=given.id or new_event_id(now, random(10)),
        group=group.name,
        source_node=given.source_node or group.node_name,
        type=given.type or "",
        subject=given.subject or "",
        dedupe_key=given.dedupe_key or "",
        payload=given.payload or {},
        observed_at=observed,
        expires_at=expires,
    )
    return normalise(event, now=now)


def _expiry(observed: int, ttl: str) -> Any:
    try:
        span = parse_duration(ttl)
        return UNSET if span <= 0 else from_micros(observed + span)
    except EventdError as error:
        raise Invalid(f"ttl {error.message}") from error
    except OverflowError:
        raise Invalid(f"ttl {quoted(ttl)} ends after the year 9999") from None


def _given(raw: Any) -> EventInput:
    try:
        return msgspec.convert(msgspec.to_builtins(raw) if isinstance(raw, PlainEvent) else raw, EventInput)
    except msgspec.ValidationError as error:
        raise Invalid(_reword(str(error))) from None


def _reword(text: str) -> str:
    """Return msgspec's message in the words of this API, naming the member; unchanged if its form is unknown."""
    if unknown := re.match(r"Object contains unknown field `(.*)`", text):
        name = shorten(unknown[1])
        known = f"an event has {', '.join(MEMBERS[: MEMBERS.index('recordedAt')])}"
        return f"unknown member {name} ({did_you_mean(name, MEMBERS, 0.7) or known})"
    if wrong := re.match(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$\.?([^`]*)`)?", text):
        wanted, got, where = wrong[1].removesuffix(" | null"), wrong[2], wrong[3]
        kinds = {"str": "text", "object": "an object", "int": "a number", "float": "a number", "array": "a list"}
        if where == "payload[...]":
            where = "each value of payload"
        return f"{where or 'an event'} must be {kinds.get(wanted, wanted)}, not {kinds.get(got, got)}"
    return text
