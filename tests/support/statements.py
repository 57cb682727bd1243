"""Collects the SQL statements of an operation: a measure of its cost that does not depend on the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from eventd.store.engine import statements as engine


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield the text of each statement that this process executes in the block; `executemany` counts once."""
    sent: list[str] = []
    run = engine._run

    def note(conn: sa.Connection, sql: str, params: Sequence[Any]) -> Any:
        sent.append(sql)
        return run(conn, sql, params)

    def hear(_conn: object, _cursor: object, sql: str, *_: object) -> None:
        sent.append(sql)

    engine._run = note
    event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield sent
    finally:
        engine._run = run
        event.remove(sa.Engine, "before_cursor_execute", hear)
