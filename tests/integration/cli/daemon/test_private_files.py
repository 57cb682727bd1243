"""File modes: a node's files are for its own user only, and so must be the secrets that it reads."""

from __future__ import annotations

import logging
import os
import resource
import stat
from contextlib import closing
from pathlib import Path

import pytest

from eventd.cli.daemon.serving import write_port_file
from eventd.cli.gateway.lock import serving_lock
from eventd.observe.log_lines import fields_of
from eventd.resources import keyring
from eventd.settings.loading import load
from eventd.settings.model import Settings
from eventd.store.engine.database import Database
from eventd.store.engine.private_file import close_to_others
from eventd.store.engine.statements import execute
from tests.support.processes import Processes


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def _generous() -> object:
    """The usual umask, under which files are readable by all."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_generous")
def test_a_new_database_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "eventd.db"
    database = Database(f"sqlite:///{file}")
    try:
        database.write_now(execute, "CREATE TABLE t (a)")
        assert {name.name: mode(name) for name in tmp_path.iterdir()} == {
            "eventd.db": 0o600,
            "eventd.db-wal": 0o600,
            "eventd.db-shm": 0o600,
        }
    finally:
        database.close()


def test_a_database_is_not_made_by_looking_at_where_it_would_be(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path / 'eventd.db'}").close()
    assert not list(tmp_path.iterdir())


def test_the_lock_does_not_empty_what_a_link_under_its_name_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "eventd.db.lock").symlink_to(precious)
    database = Database(f"sqlite:///{tmp_path / 'eventd.db'}")
    try:
        with pytest.raises(OSError, match=r"eventd\.db\.lock"), serving_lock(database):
            pass
    finally:
        database.close()
    assert precious.read_text() == "precious"


def test_a_lock_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Database(f"sqlite:///{tmp_path}/eventd.db")) as database:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # fails as a full disk does
        try:
            with pytest.raises(OSError, match=r"eventd\.db\.lock"), serving_lock(database):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_lock_that_root_creates_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65533)
    with closing(Database(f"sqlite:///{tmp_path}/eventd.db")) as database, serving_lock(database):
        found = (tmp_path / "eventd.db.lock").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65533)


def test_files_that_others_may_read_are_closed_to_them_and_to_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "eventd.db"
    for suffix, given in (("", 0o644), ("-wal", 0o664), ("-shm", 0o660)):
        Path(f"{file}{suffix}").touch()
        Path(f"{file}{suffix}").chmod(given)
    assert [found.name for found in close_to_others(file)] == ["eventd.db", "eventd.db-wal"]
    assert [mode(Path(f"{file}{suffix}")) for suffix in ("", "-wal", "-shm")] == [0o640, 0o660, 0o660]
    assert not list(close_to_others(file))


def test_a_node_closes_the_database_of_an_older_program(processes: Processes) -> None:
    node = processes.serve("n")
    node.terminate()
    file = processes.directory / "n" / "eventd.db"
    file.chmod(0o644)
    node.start().wait_ready()
    assert mode(file) == 0o640
    assert "database made private" in node.log()


def test_a_port_file_is_written_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that others may write to, every name that could be foreseen leads to a file of ours."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("port", f".port.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    write_port_file(tmp_path / "port", "127.0.0.1:8780")  # type: ignore[arg-type]  # shown as it is
    assert victim.read_text() == "precious"
    assert (tmp_path / "port").read_text() == "127.0.0.1:8780\n"
    assert not (tmp_path / "port").is_symlink()
    assert mode(tmp_path / "port") == 0o644
    assert sorted(each.name for each in tmp_path.iterdir()) == [f".port.{os.getpid()}", "port", "victim"]


@pytest.mark.parametrize(
    ("given", "told"), [(0o600, ""), (0o640, ""), (0o644, "read"), (0o602, "change"), (0o666, "read and change")]
)
def test_a_key_file_that_everybody_may_read_or_change_is_told(
    tmp_path: Path, given: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "edge.key"
    file.write_text("a secret of more than sixteen bytes")
    file.chmod(given)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            keyring._read("edge", str(file), None)
    said = [record for record in caplog.records if record.message == "key file exposed"]
    assert len(said) == bool(told), "once, however often it is read"
    if told:
        shown = fields_of(said[0])
        assert (shown["group"], shown["file"], shown["mode"]) == ("edge", str(file), f"{given:04o}")
        assert (shown["others"], shown["hint"]) == (told, "chmod o= the file")
    settings: Settings = load({"api_keys_file": str(file)}, {})
    expected = [f"every user of this machine may {told} {file}: run chmod o= {file}"] if told else []
    assert [warning for warning in settings.warnings if "chmod o=" in warning] == expected
