from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres
from tests.support.postgres import PostgresMissing, PostgresServer, find_programs
from tests.support.tether import tethered
from tests.support.waiting import wait_for


def test_it_is_a_durable_server_on_loopback(postgres_url: str) -> None:
    with PostgresServer.connect(postgres_url) as session:
        shown = {name: session.execute(f"SHOW {name}").fetchone() for name in ("fsync", "listen_addresses")}
    session.close()
    assert shown == {"fsync": ("on",), "listen_addresses": ("127.0.0.1",)}


def test_databases_are_apart(postgres_server: PostgresServer) -> None:
    first, second = postgres_server.create_database(), postgres_server.create_database()
    try:
        with PostgresServer.connect(first) as session:
            session.execute("CREATE TABLE here (id int)")
        session.close()
        with PostgresServer.connect(second) as session, pytest.raises(psycopg.errors.UndefinedTable):
            session.execute("SELECT * FROM here")
        session.close()
    finally:
        postgres_server.drop_database(first)
        postgres_server.drop_database(second)


def test_dropping_ends_open_sessions(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    session = PostgresServer.connect(url)
    try:
        assert len(postgres_server.sessions(url)) == 1
        postgres_server.drop_database(url)
        with pytest.raises(psycopg.OperationalError, match="terminating connection"):
            session.execute("SELECT 1")
    finally:
        session.close()


@pytest.mark.postgres
def test_it_dies_with_a_killed_test_run(tmp_path: Path) -> None:
    """kill -9 of pytest leaves no server; the next server removes the files."""
    script = (
        "import sys, time; from tests.support.postgres import PostgresServer, find_programs\n"
        "server = PostgresServer(find_programs()); server.start()\n"
        "print(server._process.pid, server._directory, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    command = tethered([sys.executable, "-c", script], farewell=signal.SIGKILL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as run:
        assert run.stdout is not None
        pid, directory = run.stdout.readline().split()
        run.kill()
    wait_for(lambda: not _runs(int(pid)), "the server to end with its test run")
    assert Path(directory).exists()
    postgres._remove_stale_directories()
    assert not Path(directory).exists()


def link(source: str, target: str) -> None:
    """Give a file a second name, or copy it where that is not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from the server's user")
def test_programs_behind_a_closed_door_are_copied(tmp_path: Path) -> None:
    programs = find_programs()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = programs.parent.parent
    hidden = closed / package.name / programs.parent.name / programs.name
    hidden.parent.parent.mkdir()
    shutil.copytree(programs.parent, hidden.parent, ignore=shutil.ignore_patterns("include"), copy_function=link)
    if package.with_name(f"{package.name}.libs").is_dir():
        shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs", copy_function=link)
    server = PostgresServer(hidden)
    try:
        server.start()
        assert server.sessions(server.create_database()) == []
        assert server._programs != hidden
    finally:
        server.stop()
    assert not server._directory.exists()


def test_a_named_folder_without_programs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTD_TEST_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(PostgresMissing, match=f"no Postgres programs in {tmp_path}; set EVENTD_TEST_POSTGRES_BIN"):
        find_programs()


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
