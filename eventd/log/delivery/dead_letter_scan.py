"""Dead letters that match a filter, looked for in bounded windows: their number is not bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

from eventd.log.delivery.repairs import StoredDeadLetter, read_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

COUNTED: Final = 50_000
"""Maximum number of dead letters that a count looks at."""
WINDOW: Final = 5_000
"""Maximum number of dead letters that one search looks at."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters of a topic: those of one cursor, or, if `cursor` is empty, of cursors of one `kind`.

    With one of the `reasons`; of one of the event `types`, of which one that ends with `*` is a prefix; and that became
    dead letters from `since` to `until` (microseconds, inclusive; None: no bound). Without reasons or types, all match.
    """

    topic_id: int
    cursor: str
    kind: str
    reasons: Sequence[str]
    types: Sequence[str]
    since: int | None
    until: int

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the filter that `to_json` wrote."""
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the filter as JSON values."""
        return {**asdict(self), "reasons": list(self.reasons), "types": list(self.types)}

    def selects_type(self, tag: str | None) -> bool:
        """Return whether an event of this type matches; None, for an event that is not stored, only without types."""
        if not self.types:
            return True
        return tag is not None and any(
            tag.startswith(wanted[:-1]) if wanted.endswith("*") else tag == wanted for wanted in self.types
        )

    def condition(self) -> tuple[str, list[object]]:
        """Return the condition in SQL, without the types."""
        sql, params = ["cursor = ?" if self.cursor else "cursor LIKE ?"], list[object]()
        params.append(self.cursor or f"{self.kind}:%")
        if self.reasons:
            sql.append(f"reason IN ({', '.join('?' * len(self.reasons))})")
            params += self.reasons
        if self.since is not None:
            sql.append("parked_at >= ?")
            params.append(self.since)
        sql.append("parked_at <= ?")
        params.append(self.until)
        return " AND ".join(sql), params


class FoundDeadLetters(NamedTuple):
    """What a search found: dead letters, oldest first. `after` is the last one that it looked at; `ended`: there are no
    more up to the bound."""

    letters: Sequence[StoredDeadLetter]
    after: int
    ended: bool


class DeadLetterCount(NamedTuple):
    """How many dead letters match; an estimate unless `exact`."""

    number: int
    exact: bool


_WINDOW = (
    "SELECT id, cursor, reason, parked_at FROM dead_letters WHERE topic_id = ? AND id > ? AND id <= ?"
    " ORDER BY id LIMIT ?"
)


def newest_dead_letter(conn: Connection, topic_id: int) -> int:
    """Return the row id of a topic's newest dead letter; 0 without any."""
    newest = fetch(conn, "SELECT max(id) FROM dead_letters WHERE topic_id = ?", (topic_id,))[0][0]
    return int(newest or 0)


def search_dead_letters(
    conn: Connection, wanted: DeadLetterFilter, after: int, bound: int, limit: int
) -> FoundDeadLetters:
    """Return at most `limit` matching dead letters with row ids in `(after, bound]`, of the first `WINDOW` of these."""
    window = (wanted.topic_id, after, bound, WINDOW)
    last, looked = fetch(conn, f"SELECT max(id), count(*) FROM ({_WINDOW}) AS w", window)[0]
    if last is None:
        return FoundDeadLetters((), bound, True)
    condition, params = wanted.condition()
    rows = fetch(
        conn, f"SELECT id FROM ({_WINDOW}) AS w WHERE {condition} ORDER BY id LIMIT ?", (*window, *params, limit + 1)
    )
    ids = [id for (id,) in rows[:limit]]
    letters = read_dead_letters(conn, wanted.topic_id, ids=ids, limit=limit) if ids else []
    is_cut = len(rows) > limit
    return FoundDeadLetters(
        [letter for letter in letters if wanted.selects_type(letter.tag)],
        ids[-1] if is_cut else int(last),
        not is_cut and looked < WINDOW,
    )


def count_matching(conn: Connection, wanted: DeadLetterFilter, bound: int) -> DeadLetterCount:
    """Count matching dead letters up to `bound`, without regard to types.

    Beyond the first `COUNTED` of the topic, or of the cursor if it has no more than that, the number is an estimate.
    """
    window = (wanted.topic_id, 0, bound, COUNTED)
    condition, params = wanted.condition()
    if wanted.cursor:
        own = "SELECT cursor, reason, parked_at FROM dead_letters WHERE cursor = ? AND id <= ? LIMIT ?"
        limits = (wanted.cursor, bound, COUNTED + 1)
        looked = fetch(conn, f"SELECT count(*) FROM ({own}) AS w", limits)[0][0]
        if looked <= COUNTED:
            ((found,),) = fetch(conn, f"SELECT count(*) FROM ({own}) AS w WHERE {condition}", (*limits, *params))
            return DeadLetterCount(found, True)
    looked, first, last = fetch(conn, f"SELECT count(*), min(id), max(id) FROM ({_WINDOW}) AS w", window)[0]
    ((found,),) = fetch(conn, f"SELECT count(*) FROM ({_WINDOW}) AS w WHERE {condition}", (*window, *params))
    if looked < COUNTED or last >= bound:
        return DeadLetterCount(found, True)
    return estimate(found, first, last, bound)


def estimate(found: int, first: int, last: int, bound: int) -> DeadLetterCount:
    """Return how many match up to `bound`, if `found` of those with row ids from `first` to `last` do."""
    return DeadLetterCount(round(found * (bound - first + 1) / max(1, last - first + 1)), False)
