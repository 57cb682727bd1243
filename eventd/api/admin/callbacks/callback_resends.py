"""Sends events to a callback again: chosen events, a range, failed events, or dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from eventd.api.admin.callbacks.callbacks import OneCallback, read_registered, resends_of
from eventd.api.admin.deliveries.dead_letters import name_letters, show_refusal
from eventd.api.framework.moments import read_span
from eventd.api.framework.operations import Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.errors import Conflict, NotFound
from eventd.groups.callbacks import KnownCallback, count_between, find_callback, read_obstacles, read_places
from eventd.log.core.head import lock_head
from eventd.log.cursors.cursors import Cursor, create_cursor, set_paused
from eventd.log.cursors.dead_letters import delete_dead_letters
from eventd.log.delivery.repairs import (
    MOST_POSITIONS,
    StoredDeadLetter,
    numbered_between,
    read_all_dead_letters,
    read_dead_letters,
    recorded_between,
)
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import RESEND, callback_name, resend_prefix
from eventd.store.rows.registry import announce

MOST_RESENDS = 16
"""Maximum number of unfinished resends of a callback at which another may start: all of them send at the same time."""
MOST_SHOWN = 200
"""Maximum number of characters of an id that a message shows."""


class Resend(OneCallback):
    """Which events to send again, by id; all of them or none are sent."""

    ids: list[str] = Field(
        min_length=1, max_length=MOST_POSITIONS, description="The ids of the events or records, as in their messages."
    )
    dry_run: bool = Field(default=False, description="Only show what would be sent.")


async def resend(services: Services, params: Resend) -> dict[str, Any]:
    now = services.clock.now()
    # Searched apart: all writers would wait for it.
    name, positions = await services.database.read(_plan_resend, params, now)
    if not params.dry_run:
        await services.database.write(_start_chosen, params, positions, (), now)
        await services.take_over()
    return {"callback": name, "events": len(positions), "dryRun": params.dry_run}


def _plan_resend(conn: Connection, params: Resend, now: int) -> tuple[str, list[int]]:
    """Return the callback's name, and the positions to send. Raises Conflict if any of the ids cannot be sent again."""
    callback, cursor = read_registered(conn, params.callback)
    ids = list(dict.fromkeys(params.ids))
    places = read_places(conn, callback, cursor.topic_id, ids, cursor.position, now)
    wrong = {id: why for id, why in places.items() if isinstance(why, str)}
    if wrong:
        words = "; ".join(f"{id[:MOST_SHOWN]}: {why}" for id, why in list(wrong.items())[:20])
        raise Conflict(f"nothing is sent again, because some events cannot be: {words}", hint="leave these out")
    return callback.config.name, sorted(place for place in places.values() if isinstance(place, int))


def _start_chosen(
    conn: Connection, params: OneCallback, positions: Sequence[int], letters: Sequence[int], now: int
) -> None:
    """Start resends of these positions, and delete these dead letters, by row id."""
    announce(conn)  # locks the head, which is always locked before cursors, and wakes the node
    callback, cursor = read_registered(conn, params.callback)
    _require_few(conn, callback)
    start_at(conn, callback, cursor, positions, now)
    delete_dead_letters(conn, letters)


def _require_few(conn: Connection, callback: KnownCallback) -> None:
    name = callback.config.name
    if len(resends_of(conn, name)) >= MOST_RESENDS:
        hint = f"wait until one of them is done: routerctl callback describe {name} lists them"
        raise Conflict(f"{name} has {MOST_RESENDS} unfinished resends, which is the most", hint=hint)


class Replay(OneCallback):
    """Which range to send again: a span of time, a range of seq, or what failed."""

    since: str = Field(default="", description="Only events stored at this time or later: RFC 3339, or an age (`15m`).")
    until: str = Field(default="", description="Only events stored at this time or earlier.")
    from_seq: int | None = Field(default=None, ge=1, description="The first seq to send, in the topic.")
    to_seq: int | None = Field(default=None, ge=1, description="The last seq to send, in the topic.")
    failed: bool = Field(default=False, description="Only the callback's dead letters in that range, or all of them.")
    dry_run: bool = Field(default=False, description="Only show what would be sent.")

    @model_validator(mode="after")
    def _one_range(self) -> Self:
        by_time, by_seq = bool(self.since or self.until), self.from_seq is not None or self.to_seq is not None
        if by_time and by_seq:
            raise ValueError("must select events in one way: by since and until, or by fromSeq and toSeq")
        if self.from_seq is not None and self.to_seq is not None and self.to_seq < self.from_seq:
            raise ValueError(f"toSeq ({self.to_seq}) must not be less than fromSeq ({self.from_seq})")
        if not (by_time or by_seq or self.failed):
            raise ValueError("must select events: by since and until, by fromSeq and toSeq, or by failed")
        return self


class _ReplayPlan(NamedTuple):
    """A planned replay of the positions `(after, upto]`, or only of the dead letters in that range, if requested.

    `events` counts the events that will be sent.
    """

    callback: str
    after: int
    upto: int
    letters: Sequence[StoredDeadLetter]
    events: int


async def replay(services: Services, params: Replay) -> dict[str, Any]:
    now = services.clock.now()
    plan = await services.database.read(_plan_replay, params, now)
    if not params.dry_run:
        if params.failed:
            positions, ids = _places_of(plan.letters)
            await services.database.write(_start_chosen, params, positions, ids, now)
        else:
            await services.database.write(_start_range, params, plan.after, plan.upto, now)
        await services.take_over()
    return {"callback": plan.callback, "events": plan.events, "dryRun": params.dry_run}


def _plan_replay(conn: Connection, params: Replay, now: int) -> _ReplayPlan:
    callback, cursor = read_registered(conn, params.callback)
    after, upto = _range(conn, params, cursor, now)
    # What lies beyond the cursor is sent anyway.
    upto = min(upto, cursor.position)
    letters: list[StoredDeadLetter] = []
    if params.failed:
        inside = [
            letter
            for letter in read_all_dead_letters(conn, cursor.topic_id, cursor=cursor.name)
            if after < letter.position <= upto
        ]
        letters, _ = sort_letters(conn, callback, cursor, inside, now)
    events = len(letters) if params.failed else count_between(conn, callback, cursor.topic_id, after, upto, now)
    if not events:
        raise Conflict(
            f"there is nothing to send to {callback.config.name} again",
            hint="what the callback has not received yet is sent without a replay",
        )
    return _ReplayPlan(callback.config.name, after, upto, letters, events)


def _places_of(letters: Sequence[StoredDeadLetter]) -> tuple[list[int], list[int]]:
    """Return the positions of dead letters, in order, and their row ids."""
    return sorted({letter.position for letter in letters}), [letter.id for letter in letters]


def _start_range(conn: Connection, params: Replay, after: int, upto: int, now: int) -> None:
    announce(conn)
    callback, cursor = read_registered(conn, params.callback)
    _require_few(conn, callback)
    selection = CallbackSelection(callback.config.selector, callback.selection.intervals)
    _start(conn, callback, cursor, after, upto, selection, now)


def _range(conn: Connection, params: Replay, cursor: Cursor, now: int) -> tuple[int, int]:
    """Return the positions `(after, upto]` that the parameters select."""
    if params.from_seq is not None or params.to_seq is not None:
        return numbered_between(conn, cursor.topic_id, params.from_seq or 1, params.to_seq or (1 << 62))
    if params.since or params.until:
        return recorded_between(conn, cursor.topic_id, *read_span(params.since, params.until, now))
    return 0, cursor.position


def _start(
    conn: Connection,
    callback: KnownCallback,
    cursor: Cursor,
    after: int,
    upto: int,
    selection: CallbackSelection,
    now: int,
) -> None:
    """Start a resend over `(after, upto]`: a cursor beside the callback's own, which ends there.

    If the callback is paused, so is the resend.
    """
    name = callback.config.name
    numbers = [int(one.name.rpartition("#")[2]) for one in resends_of(conn, name)]
    resend = f"{resend_prefix(name)}{max(numbers, default=0) + 1}"
    create_cursor(
        conn,
        resend,
        kind=RESEND,
        topic_id=cursor.topic_id,
        position=after,
        until=upto,
        selection=selection.to_json(),
        selector_version=cursor.selector_version,
        now=now,
    )
    if cursor.paused_at is not None:
        set_paused(conn, resend, at=cursor.paused_at, by=cursor.paused_by)


def start_at(conn: Connection, callback: KnownCallback, cursor: Cursor, positions: Sequence[int], now: int) -> None:
    """Start resends of these positions. The head must be locked, and the change announced."""
    for start in range(0, len(positions), MOST_POSITIONS):
        some = positions[start : start + MOST_POSITIONS]
        selection = CallbackSelection(callback.config.selector, None, frozenset(some))
        _start(conn, callback, cursor, min(some) - 1, max(some), selection, now)


# --- dead letters ---------------------------------------------------------------------------------------------------


class ListCallbackDeadLetters(OneCallback):
    """Which dead letters to list, oldest first unless `newest`."""

    newest: bool = Field(default=False, description="Newest first; `after` then continues with older ones.")
    after: int = Field(default=0, ge=0, description="Continue after the dead letter with this id.")
    limit: Limit = PAGE_SIZE


async def list_letters(services: Services, params: ListCallbackDeadLetters) -> dict[str, Any]:
    return await services.database.read(_read_letters, params)


def _read_letters(conn: Connection, params: ListCallbackDeadLetters) -> dict[str, Any]:
    name = find_callback(conn, params.callback).config.name
    cursor = callback_name(name)
    topic_id = read_registered(conn, params.callback)[1].topic_id
    found = read_dead_letters(
        conn, topic_id, cursor=cursor, after=params.after, limit=params.limit + 1, newest=params.newest
    )
    shown, following = cut_page(found, params.limit, lambda letter: letter.id)
    return {"deadLetters": [_show(letter) for letter in shown], "next": following}


def _show(letter: StoredDeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "eventId": letter.event_id,
        "position": letter.position,
        **show_refusal(letter),
    }


class ChooseCallbackDeadLetters(OneCallback):
    """Some dead letters of a callback: by id, or all."""

    ids: list[int] = Field(default=[], max_length=MOST_POSITIONS, description="The ids of the dead letters.")
    all: bool = Field(default=False, description="All dead letters of the callback.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if bool(self.ids) == self.all:
            raise ValueError("must choose dead letters in one way: by ids, or all")
        return self


async def retry_letters(services: Services, params: ChooseCallbackDeadLetters) -> dict[str, Any]:
    now = services.clock.now()
    again, kept = await services.database.read(_plan_retry, params, now)
    if params.ids:
        name_letters(again)
    if again:
        await services.database.write(_start_chosen, params, *_places_of(again), now)
        await services.take_over()
    return {"retried": len(again), "kept": kept}


def _plan_retry(
    conn: Connection, params: ChooseCallbackDeadLetters, now: int
) -> tuple[list[StoredDeadLetter], list[dict[str, Any]]]:
    callback, cursor = read_registered(conn, params.callback)
    return sort_letters(conn, callback, cursor, _chosen(conn, params, cursor), now)


def sort_letters(
    conn: Connection, callback: KnownCallback, cursor: Cursor, letters: Sequence[StoredDeadLetter], now: int
) -> tuple[list[StoredDeadLetter], list[dict[str, Any]]]:
    """Return the dead letters whose events can be sent again, and, as JSON, the other dead letters, each with the
    reason."""
    positions = frozenset(letter.position for letter in letters)
    chosen = callback._replace(selection=CallbackSelection(callback.config.selector, None, positions))
    begin = min(positions, default=1) - 1
    end = min(cursor.position, max(positions, default=0))
    obstacles = read_obstacles(conn, chosen, cursor.topic_id, begin, end, now)
    why_not = {letter.id: obstacles.get(letter.position, "it is not stored any more") for letter in letters}
    again = [letter for letter in letters if not why_not[letter.id]]
    kept = [
        {"id": letter.id, "eventId": letter.event_id, "reason": why_not[letter.id]}
        for letter in letters
        if why_not[letter.id]
    ]
    return again, kept


async def drop_letters(services: Services, params: ChooseCallbackDeadLetters) -> dict[str, Any]:
    if params.ids:
        name_letters(await services.database.read(_find, params))
    return {"dropped": await services.database.write(_drop_now, params)}


def _drop_now(conn: Connection, params: ChooseCallbackDeadLetters) -> int:
    lock_head(conn)
    return delete_dead_letters(conn, [letter.id for letter in _find(conn, params)])


def _find(conn: Connection, params: ChooseCallbackDeadLetters) -> list[StoredDeadLetter]:
    return _chosen(conn, params, read_registered(conn, params.callback)[1])


def _chosen(conn: Connection, params: ChooseCallbackDeadLetters, cursor: Cursor) -> list[StoredDeadLetter]:
    """Return the chosen dead letters, ordered by id. Raises NotFound for an id that no dead letter has."""
    if params.ids:
        found = read_dead_letters(conn, cursor.topic_id, cursor=cursor.name, ids=params.ids, limit=len(params.ids))
        missing = sorted(set(params.ids) - {letter.id for letter in found})
        if missing:
            raise NotFound(f"the callback has no dead letter {', '.join(map(str, missing[:20]))}")
        return found
    return read_all_dead_letters(conn, cursor.topic_id, cursor=cursor.name)
