"""Removes what deleted topics leave, step by step, as housekeeping does."""

from __future__ import annotations

from eventd.log.topics.deleted_topics import STEP_ROWS, clear_deleted
from eventd.store.engine.database import Database
from eventd.testing import NOW


async def clear_all(database: Database, *, chunk: int = STEP_ROWS, now: int = NOW) -> list[int]:
    """Run all steps; return the number of rows that each step removed."""
    rows: list[int] = []
    after = ""
    while (cleared := await database.write(clear_deleted, after, now=now, chunk=chunk)) is not None:
        after = cleared.upto
        rows.append(cleared.rows)
    return rows
