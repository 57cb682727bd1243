"""Routers in the books: their lines, how they are declared and removed, and the one unit by which they move.

A router's cursor is a line of `cursors` like every consumer's, with its position for a fence. What routers do with a
record is no concern of this module: `options` is kept as it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import sqlalchemy as sa


class RouterLine(NamedTuple):
    """A router and where it stands. `position` and `seq` are those of its source up to which all is done.

    `state` and `reason` say whether it is held up; `forwarded` counts copies and what its source lost before it came,
    `refused` what was set aside. Times in microseconds.
    """

    id: int
    name: str
    source_id: int
    dest_id: int
    source: str
    dest: str
    options: str
    position: int
    seq: int
    forwarded: int
    refused: int
    state: str
    reason: str
    created_at: int
    updated_at: int

    @property
    def cursor(self) -> str:
        """The name of its cursor."""
        return cursor_of(self.name)


def cursor_of(router: str) -> str:
    """The name of a router's cursor."""
    return f"router:{router}"


def read_routers(conn: sa.Connection) -> list[RouterLine]:
    """All routers, by name."""
    raise NotImplementedError


def read_router(conn: sa.Connection, name: str) -> RouterLine | None:
    """One router."""
    raise NotImplementedError


def remove_routers_of(conn: sa.Connection, topic_id: int) -> list[str]:
    """Remove every router that reads or writes a topic, in the open transaction; their names, sorted by bytes.

    Whoever calls moves the version of topics. The head must be locked.
    """
    raise NotImplementedError


Check = Callable[[Sequence[RouterLine], Sequence[RouterLine]], None]
"""Raises an `EventdError` where a router must not be, by those into its destination and those that lead on from it."""
