"""A page as it goes over the wire: its lines joined by the database itself.

A peer gets the stored bytes as they are, so nothing of a record has to become a value in this process: the database
picks the records, says which of them must not go, and hands over one text. That is a third of the cost of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from eventd.log.head import read_head
from eventd.log.reading import affordable
from eventd.log.values import Gap, Head
from eventd.store.database import fetch, joined

_LINE = "CAST(position AS TEXT) || CAST(? AS TEXT) || path || CAST(? AS TEXT) || body || CAST(? AS TEXT)"
_EXCEPTION = "CAST(position AS TEXT) || ' ' || reason || ','"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be picked. Empty `types` and `subject_prefixes` mean all; `positions`, where given, are the only ones.

    Without `relay` only what entered the log here is picked. What `without` would pick is left out. `peer` is the
    node that gets the lines, as it stands in a path: what came from it or through it must not go back.
    """

    peer: str
    peer_in_path: str
    types: Sequence[str] = ()
    subject_prefixes: Sequence[str] = ()
    relay: bool = False
    positions: Sequence[int] = ()
    without: Wanted | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """`text` is `count` lines of position, path and body, each ended by a line feed.

    `exceptions` are records that were wanted and must not go, with the reason; `oldest` is the earliest time of
    recording in microseconds, 0 without lines. For `gaps`, `upto`, `full`, `head` and `lost` see `Page`.
    """

    text: str
    count: int
    oldest: int
    exceptions: Sequence[tuple[int, str]]
    gaps: Sequence[Gap]
    upto: int
    full: bool
    head: Head
    lost: int


def read_lines(
    conn: sa.Connection,
    topic_id: int,
    after: int,
    wanted: Wanted,
    *,
    limit: int,
    max_bytes: int,
    until: int | None,
    now: int,
) -> Lines:
    """The next lines of a topic beyond `after`: at most `limit` records, about `max_bytes` of bodies, at least one."""
    head = read_head(conn)
    end = head.last if until is None else min(until, head.last)
    evicted, evicted_seq, largest, lost = fetch(
        conn, "SELECT evicted_position, evicted_seq, largest, lost_position FROM topics WHERE id = ?", (topic_id,)
    )[0]
    gaps = [Gap(topic_id, after, evicted, evicted_seq)] if evicted > after else []
    where, params = _conditions(wanted)
    where, params = f"topic_id = ? AND position > ? AND position <= ? AND {where}", [topic_id, after, end, *params]
    if limit * largest > max_bytes:
        limit = affordable(conn, where, params, limit, max_bytes)
    found, last, text, count, oldest, exceptions = fetch(
        conn,
        f"""
        WITH page AS (
            SELECT position, path, body, recorded_at, {_reason(wanted)} AS reason FROM records
            WHERE {where} ORDER BY position LIMIT ?
        )
        SELECT count(*), max(position),
            {joined(conn, _LINE)} FILTER (WHERE reason = ''),
            count(*) FILTER (WHERE reason = ''), min(recorded_at) FILTER (WHERE reason = ''),
            {joined(conn, _EXCEPTION)} FILTER (WHERE reason <> '')
        FROM page
        """,
        (*_reason_params(wanted, now), *params, limit, "\t", "\t", "\n"),
    )[0]
    full = found == limit
    upto = last if full else max(end, after)
    return Lines(text or "", count, oldest or 0, _exceptions(exceptions), gaps, upto, full, head, lost)


def _exceptions(text: str | None) -> list[tuple[int, str]]:
    pairs = (entry.split(" ") for entry in (text or "").split(",") if entry)
    return [(int(position), reason) for position, reason in pairs]


def _reason(wanted: Wanted) -> str:
    """Why a record that is wanted must not go; empty when it may."""
    through = " OR replace(',' || path || ',', ?, '') <> ',' || path || ','" if wanted.relay else ""
    return f"CASE WHEN expires_at < ? THEN 'expired' WHEN node = ?{through} THEN 'in_path' ELSE '' END"


def _reason_params(wanted: Wanted, now: int) -> tuple[object, ...]:
    return (now, wanted.peer, f",{wanted.peer_in_path},") if wanted.relay else (now, wanted.peer)


def _conditions(wanted: Wanted) -> tuple[str, list[object]]:
    texts = [] if wanted.relay else ["path = ''"]
    params: list[object] = []
    if wanted.types:
        texts.append(f"tag IN ({_marks(wanted.types)})")
        params += wanted.types
    if wanted.subject_prefixes:
        # a plain comparison of the first characters: LIKE would give % and _ a meaning
        each = "substr(subject, 1, length(CAST(? AS TEXT))) = ?"
        texts.append(f"({' OR '.join([each] * len(wanted.subject_prefixes))})")
        params += [prefix for prefix in wanted.subject_prefixes for _ in range(2)]
    if wanted.positions:
        texts.append(f"position IN ({_marks(wanted.positions)})")
        params += wanted.positions
    if wanted.without is not None:
        text, excluded = _conditions(wanted.without)
        texts.append(f"NOT ({text})")
        params += excluded
    return " AND ".join(texts) or "1 = 1", params


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
