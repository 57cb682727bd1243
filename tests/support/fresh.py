"""Databases at the newest schema, quickly: to apply all migrations takes longer than most tests that need one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from eventd.store import migrations
from eventd.store.database import Database, execute
from eventd.store.migrations import new_epoch


def make_current(url: str, *, now: int) -> None:
    """Bring a database to the newest schema; a missing SQLite file becomes a copy, with a history of its own."""
    database = Database(url)
    try:
        if database.path is not None and not database.path.exists():
            shutil.copyfile(_template(), database.path)
            database.write_now(execute, "UPDATE log_heads SET epoch = ?, instance = ?", (new_epoch(), new_epoch()))
        else:
            database.write_now(migrations.upgrade, now=now)
    finally:
        database.close()


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="eventd-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    database = Database(f"sqlite:///{folder}/eventd.db")
    try:
        database.write_now(migrations.upgrade, now=1)
    finally:
        database.close()
    return folder / "eventd.db"
