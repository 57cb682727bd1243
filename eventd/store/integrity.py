"""Is the database whole?"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.database import fetch


def find_damage(conn: sa.Connection) -> list[str]:
    """What SQLite's own check finds wrong with the file, at most twenty lines; it reads the whole file.

    For SQLite only: Postgres checks its pages itself.
    """
    return [str(line) for (line,) in fetch(conn, "PRAGMA quick_check(20)") if line != "ok"]
