"""Deleting records by request: silent, permanent, and no loss.

A record's line stays, empty, where others of its block live; the floor of a topic moves over what was deleted at its
beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from eventd.log.commit import Transaction
from eventd.log.predicate import Predicate
from eventd.log.values import Appended, Drafts


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many records went, and how the topic stands then. `head_seq`: of the last record ever written to it."""

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class Delete:
    """Delete the records below `before_seq` (None: all there are now) whose tag matches, as far as one step goes.

    Result: `Step`. Raises `TopicNotFound`, and `Incompatible` for the topic of a group.
    """

    topic_id = None
    cursor = None
    weight = 1
    durable = True
    background = False

    def __init__(self, name: str, *, before_seq: int | None, predicate: Predicate | None, after: int = 0) -> None:
        self._name = name
        self._before_seq = before_seq
        self._predicate = predicate
        self._after = after

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def finish(self, tx: Transaction, appended: Appended) -> Step:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Step:
    """What one step deleted. Where there is more to be looked at, `next_unit` goes on."""

    done: Deleted
    next_unit: Delete | None


async def delete_records(
    submit: Callable[[Delete], Awaitable[Step]],
    name: str,
    *,
    before_seq: int | None = None,
    predicate: Predicate | None = None,
) -> Deleted:
    """Delete, in steps between which others write; only what is there at the first one. Raises what `Delete` does."""
    raise NotImplementedError


def erase(conn: sa.Connection, topic_id: int, seqs: Sequence[int], now: int) -> int:
    """Delete the records of these seqs that exist, in the open transaction, which must hold the head; how many did."""
    raise NotImplementedError
