"""A database of each release is migrated by this version, and nothing of what it holds is lost."""

from __future__ import annotations

import gzip
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.release.database import FOLDER, SUBJECTS, file_of, make_database
from eventd.store.schema.migrations import NEWEST
from tests.support.processes import CONTROL, DAEMON, Processes
from tests.support.source import ROOT

RELEASES = sorted(file.name.removesuffix(".db.gz") for file in FOLDER.glob("*.db.gz"))


def unpack(file: Path, folder: Path) -> Path:
    database = folder / "eventd.db"
    database.write_bytes(gzip.decompress(file.read_bytes()))
    database.chmod(0o600)
    return database


@pytest.mark.parametrize("number", RELEASES)
def test_the_database_of_a_release_is_migrated_with_all_that_it_holds(
    number: str, tmp_path: Path, processes: Processes
) -> None:
    def told(*words: str, program: Sequence[str] = CONTROL) -> str:
        done = processes.run([*program, *words, "--data-dir", str(tmp_path)])
        assert done.returncode == 0, done.stderr
        return done.stdout

    database = unpack(file_of(number), tmp_path)
    told("migrate", program=DAEMON)
    with sqlite3.connect(database) as opened:
        assert opened.execute("SELECT version_num FROM alembic_version").fetchall() == [(NEWEST,)]
    opened.close()
    events = told("federation", "event", "list", "-o", "json")
    assert [subject for subject in SUBJECTS if subject not in events] == []
    records = told("topic", "read", "audit", "-o", "json")
    assert [item for item in ("bolt", "µ") if item not in records] == []
    assert "orders" in told("router", "list")
    assert "cloud" in told("get", "EventPeer")


def test_every_release_in_the_changelog_has_its_database() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert [number for number in released if number not in RELEASES] == [], "run make release-database before a release"


def test_the_database_of_the_next_release_can_be_made_and_has_what_is_looked_for(tmp_path: Path) -> None:
    with sqlite3.connect(unpack(make_database(tmp_path / "next.db.gz"), tmp_path)) as database:
        (topics,) = database.execute("SELECT group_concat(name) FROM topics").fetchone()
        assert {"orders", "audit"} <= set(topics.split(","))
        assert database.execute("SELECT count(*) FROM resources WHERE kind = 'EventPeer'").fetchone() == (1,)
    database.close()
