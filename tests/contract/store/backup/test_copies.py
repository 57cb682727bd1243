"""A backup of a SQLite database has everything that was committed before it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from eventd.log.core.topic_row import ensure_topic, read_group_topics
from eventd.store.backup.backup import back_up
from eventd.store.engine.database import Database
from eventd.testing import NOW


def test_a_backup_has_what_lies_only_in_the_write_ahead_log(migrated_sqlite_url: str, tmp_path: Path) -> None:
    with closing(Database(migrated_sqlite_url)) as database:
        database.write_now(ensure_topic, "group:g", NOW)
        copy = back_up(database, tmp_path / "copy.db")
    with closing(Database(f"sqlite:///{copy.path}")) as copied:
        assert [topic.name for topic in copied.read_now(read_group_topics)] == ["group:g"]
