"""`routerd-eventd` as a user runs it: its output, its exit status, and that an expected error is one line."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import typer

from eventd.cli.gateway.local import LocalGateway
from eventd.cli.routerd_eventd_commands import app
from eventd.errors import CheckFailed, DatabaseUnusable, MissingExtra
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine.foreign_file import refuse_foreign
from tests.support.fresh import make_current
from tests.support.processes import DAEMON, Processes
from tests.support.waiting import wait_for

Ended = subprocess.CompletedProcess[str]


class Daemon:
    """The command, on a data folder of the test."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.folder = processes.directory / "node"
        self.file = self.folder / "eventd.db"

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> Ended:
        settings = {"EVENTD_DATA_DIR": str(self.folder), "EVENTD_API_LISTEN": "127.0.0.1:0"}
        return self.processes.run([*DAEMON, *arguments], env={**settings, **(env or {})})

    def make_database(self) -> None:
        """Make a database with the current schema and an empty log, which no node has served."""
        self.folder.mkdir(mode=0o700)
        make_current(f"sqlite:///{self.file}", now=SystemClock().now())


@pytest.fixture
def daemon(processes: Processes) -> Daemon:
    return Daemon(processes)


def one_line(ended: Ended, code: int) -> str:
    """The error of a command that failed as it should: one line, and the exit code."""
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert (ended.returncode, len(lines)) == (code, 1), ended
    assert "Traceback" not in ended.stderr
    return lines[0].removeprefix("error: ")


# --- serve -------------------------------------------------------------------------------------------------------


def test_a_node_serves_drains_and_serves_again(processes: Processes) -> None:
    """A killed one too: it leaves no lock behind."""
    node = processes.serve("node", empty=True)
    assert (processes.directory / "node").stat().st_mode & 0o777 == 0o700
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", node.port_file.read_text())
    assert json.loads(node.get("/healthz")[1])["status"] == "ok"
    assert b"routerd_eventd_log_head_position" in node.get("/metrics")[1]
    assert node.terminate() == 0
    assert not node.port_file.exists()
    node.start().wait_ready()
    node.kill9()
    node.start().wait_ready()
    assert node.terminate() == 0
    lines = [json.loads(line) for line in node.log().splitlines()]
    assert [line["msg"] for line in lines if line["logger"] == "eventd.serve"] == [
        "schema upgraded",
        *("ready", "stopping", "stopped"),
        "ready",
        *("ready", "stopping", "stopped"),
    ]


def test_sighup_reads_the_keys_again_and_keeps_the_old_ones_when_it_cannot(
    processes: Processes, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one:r\n")
    node = processes.serve("node", "--api-keys-file", str(keys))

    def status(key: str) -> int:
        return node.get("/metrics", headers={"Authorization": f"Bearer {key}"})[0]

    assert (status("one"), status("two")) == (200, 401)
    keys.write_text("two:r\n")
    node.send(signal.SIGHUP)
    wait_for(lambda: status("two") == 200, "the new key to be known")
    assert status("one") == 401
    keys.write_text("")
    node.send(signal.SIGHUP)
    wait_for(lambda: f"--api-keys-file: {keys} contains no key" in node.log(), "the failure to be reported")
    assert status("two") == 200
    assert node.terminate() == 0


def test_beside_a_running_node_a_second_is_refused_by_name_and_all_checks_pass(
    processes: Processes, daemon: Daemon
) -> None:
    node = processes.serve("node")
    told = one_line(daemon.run("serve"), 1)
    assert told == (
        f"process {node.pid} serves, migrates or restores this database: it holds {daemon.file}.lock"
        " (stop it first, or use another data folder)"
    )
    assert one_line(daemon.run("migrate", "--new-epoch"), 1) == told
    checked = json.loads(daemon.run("check", "-o", "json").stdout)
    assert checked["ok"] is True
    states = {check["name"]: check["state"] for check in checked["checks"]}
    assert states.pop("folder") in ("ok", "warning")  # what is free is the machine's affair
    assert states == dict.fromkeys(("api keys", "database", "integrity", "schema", "writing", "node"), "ok")
    assert f"process {node.pid} serves this database" in json.dumps(checked)
    assert node.get("/readyz")[0] == 200


def test_a_port_in_use_is_one_line(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = one_line(daemon.run("serve", "--api-listen", f"127.0.0.1:{port}"), 1)
    assert told.startswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use (")


def test_an_api_without_keys_is_not_opened_to_others(daemon: Daemon) -> None:
    told = one_line(daemon.run("serve", "--api-listen", "0.0.0.0:0"), 1)
    assert told.startswith("other machines can reach the API on 0.0.0.0:0, and it has no keys")
    assert not daemon.folder.exists()


@pytest.mark.parametrize(
    ("library", "option"), [("quic.library", ("--quic-listen", "127.0.0.1:0")), ("lake.extra", ("--lake", "lake"))]
)
def test_a_missing_package_is_reported_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, option: tuple[str, str]
) -> None:
    monkeypatch.setattr(f"eventd.{library}.find_spec", lambda _name: None)
    monkeypatch.chdir(tmp_path)
    for command, told in (("serve", MissingExtra), ("check", CheckFailed)):
        with pytest.raises(told):
            typer.main.get_command(app)([command, "--data-dir", "new", *option], standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_it_opens_when_that_is_said_to_be_meant_and_warns_of_an_unknown_variable(processes: Processes) -> None:
    open_to_others = ("--api-listen", "0.0.0.0:0", "--allow-insecure-no-auth")
    node = processes.serve("node", *open_to_others, env={"EVENTD_DRAIN_TIMEUOT": "5s"})
    assert node.terminate() == 0
    first = json.loads(node.log().splitlines()[0])
    assert (first["level"], first["msg"]) == ("warning", "setting questionable")
    assert first["warning"] == "EVENTD_DRAIN_TIMEUOT is not a setting (did you mean EVENTD_DRAIN_TIMEOUT?)"


NOT_OURS = {
    "tables": ["CREATE TABLE customers (name TEXT)"],
    "alembic": ["CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('1234')"],
    "wal": ["PRAGMA journal_mode=WAL", "CREATE TABLE customers (name TEXT)"],
}
HOT = {
    "hot wal": ["PRAGMA journal_mode=WAL", "CREATE TABLE customers (name TEXT)", "PRAGMA wal_checkpoint", "VACUUM"],
    "all in wal": ["PRAGMA journal_mode=WAL", "CREATE TABLE customers (name TEXT)"],
}
"""Copied with their write-ahead logs while a program had them open."""


def _of_another_program(folder: Path, how: str) -> tuple[Path, str]:
    """A file of another program, and how the message about it begins."""
    file = folder / "theirs" / "app.db"
    file.parent.mkdir()
    for sql in NOT_OURS.get(how, ()):
        _sql(file, sql)
    if how in HOT:
        _copy_hot(file, HOT[how])
    elif how not in NOT_OURS:
        file.write_bytes(b"this is no database, however long it is" * (100 if how == "bytes" else 1))
    file.chmod(0o664)
    holds = dict.fromkeys([*NOT_OURS, *HOT], "customers") | {"alembic": "alembic_version"}
    why = f", but contains {holds[how]}" if how in holds else ": file is not a database"
    return file, f"{file} is not a database of routerd-eventd{why}"


@pytest.mark.parametrize("how", ["bytes", "short", *NOT_OURS, *HOT])
def test_a_file_of_another_program_is_recognised_and_left_as_it_is(tmp_path: Path, how: str) -> None:
    """Its bytes, its mode, and what exists next to it."""
    file, told = _of_another_program(tmp_path, how)
    before = _contents(file.parent)
    with pytest.raises(DatabaseUnusable) as refused:
        refuse_foreign(file)
    assert refused.value.message == told
    assert refused.value.hint.startswith("name another file")
    assert (_contents(file.parent), file.stat().st_mode & 0o777) == (before, 0o664)


def test_a_file_of_another_program_is_judged_alike_by_all_commands_and_left_as_it_is(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Nor is a data folder made for it."""
    file, why = _of_another_program(tmp_path, "hot wal")
    before = _contents(file.parent)
    env = {"EVENTD_DATABASE_URL": f"sqlite:///{file}"}
    for command in ("serve", "migrate"):
        ended = daemon.run(command, env=env)
        assert one_line(ended, 1).startswith(f"{why} (name another file")
        assert len(ended.stderr.splitlines()) == 1, "no warning about its mode"
    for command in (["get", "EventGroup"], ["doctor"], ["db", "backup", str(tmp_path / "copy")]):
        ended = daemon.processes.control(*command, env=env)
        assert one_line(ended, 1).startswith(f"{why} (name another file")
    checked = daemon.run("check", env=env)
    assert (checked.returncode, "is not a database of routerd-eventd" in checked.stdout) == (4, True)
    assert (_contents(file.parent), file.stat().st_mode & 0o777) == (before, 0o664)
    assert not daemon.folder.exists()


def test_a_database_of_ours_is_known_by_its_log(daemon: Daemon, tmp_path: Path) -> None:
    """All its tables may still be there, when it is copied before the first checkpoint."""
    daemon.make_database()
    with closing(sqlite3.connect(daemon.file)) as made:
        rows = made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND sql NOT LIKE '%sqlite_%'")
        schema = [sql for (sql,) in rows]
    file = tmp_path / "copied" / "eventd.db"
    file.parent.mkdir()
    _copy_hot(file, ["PRAGMA journal_mode=WAL", *schema])
    before = _contents(file.parent)
    with closing(sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)) as alone:
        assert not alone.execute("SELECT name FROM sqlite_master").fetchall()
    refuse_foreign(file)
    assert _contents(file.parent) == before


def _copy_hot(file: Path, statements: list[str]) -> None:
    """A database and its write-ahead log, copied while they are open."""
    source = file.parent.parent / "open.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        for sql in statements:
            connection.execute(sql)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{source}{suffix}", f"{file}{suffix}")
    assert Path(f"{file}-wal").stat().st_size


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_database_of_a_newer_program_is_left_alone(daemon: Daemon) -> None:
    daemon.make_database()
    _sql(daemon.file, "UPDATE alembic_version SET version_num = '9999'")
    for command in ("serve", "migrate"):
        told = one_line(daemon.run(command), 1)
        assert told.startswith(f"sqlite:///{daemon.file}: the database has the schema '9999', which this version does")
    assert f"sqlite:///{daemon.file}: the database has the schema '9999'" in daemon.run("check").stdout


def test_a_database_somebody_else_holds_is_one_line(daemon: Daemon) -> None:
    daemon.folder.mkdir()
    holding = sqlite3.connect(daemon.file, isolation_level=None)
    try:
        holding.execute("PRAGMA journal_mode=WAL")
        holding.execute("BEGIN IMMEDIATE")
        told = one_line(daemon.run("serve"), 1)
    finally:
        holding.close()
    assert "database is locked" in told
    assert "another process locks the database; retry" in told


def test_a_folder_that_is_a_file_is_one_line(daemon: Daemon) -> None:
    daemon.folder.write_text("")
    assert one_line(daemon.run("serve"), 1).startswith(f"{daemon.folder}: File exists (it must be a folder")
    assert f"{daemon.folder} is not a folder" in daemon.run("check").stdout


def test_a_database_in_a_folder_that_is_missing_is_one_line(daemon: Daemon, tmp_path: Path) -> None:
    told = one_line(daemon.run("serve", "--database", f"sqlite:///{tmp_path}/no/eventd.db"), 1)
    assert told == f"the folder {tmp_path}/no of the database does not exist (create it, or set data_dir)"


def test_a_secret_file_that_is_missing_is_one_line(daemon: Daemon) -> None:
    told = one_line(daemon.run("serve", "--api-keys-file", "/no/keys"), 1)
    assert told == "--api-keys-file: /no/keys cannot be read: No such file or directory"


def test_a_wrong_flag_is_a_wrong_usage(daemon: Daemon) -> None:
    assert one_line(daemon.run("serve", "--log-level", "loud"), 2).startswith("--log-level: 'loud' is not one of")
    told = one_line(daemon.run("serve", "--no-such-flag"), 2)
    assert told == "no such option: --no-such-flag (see routerd-eventd serve --help)"
    assert one_line(daemon.run("serve", env={"EVENTD_LOG_LEVEL": "loud"}), 1).startswith("EVENTD_LOG_LEVEL: 'loud'")


@pytest.mark.postgres
def test_postgres_is_migrated_only_when_told_to(processes: Processes, daemon: Daemon, postgres_url: str) -> None:
    env = {"EVENTD_DATABASE_URL": postgres_url}
    told = one_line(daemon.run("serve", env=env), 1)
    assert "lacks" in told
    assert "run `routerd-eventd migrate`, or start with --migrate" in told
    assert daemon.run("migrate", "--plan", env=env).stdout.startswith("would apply ")
    node = processes.serve("node", "--migrate", database_url=postgres_url)
    assert node.terminate() == 0
    processes.serve("again", database_url=postgres_url).terminate()
    checked = json.loads(daemon.run("check", "-o", "json", env=env).stdout)
    assert checked["ok"] is True
    assert {check["name"] for check in checked["checks"]} == {"api keys", "database", "schema", "writing"}


# --- migrate -----------------------------------------------------------------------------------------------------


def test_a_plan_touches_nothing(daemon: Daemon) -> None:
    planned = daemon.run("migrate", "--plan", "--new-epoch")
    assert planned.returncode == 0
    assert planned.stdout.splitlines() == [
        f"the database sqlite:///{daemon.file} does not exist and would be created",
        "would start a new epoch",
    ]
    assert not daemon.folder.exists()


def test_migrate_says_what_it_did(daemon: Daemon) -> None:
    assert re.fullmatch(r"(applied \w+\n)+", daemon.run("migrate").stdout)
    assert daemon.run("migrate").stdout.startswith("the schema is up to date: ")
    assert daemon.run("migrate", "--plan").stdout == "the schema is up to date\n"


def test_a_new_epoch_is_told_with_the_old_one(daemon: Daemon) -> None:
    daemon.make_database()
    (before,) = _sql(daemon.file, "SELECT epoch FROM log_heads")[0]
    told = daemon.run("migrate", "--new-epoch").stdout.splitlines()[-1]
    (after,) = _sql(daemon.file, "SELECT epoch FROM log_heads")[0]
    assert after != before
    assert told == f"the log has the new epoch {after}; the previous one was {before}"


def test_a_new_epoch_stays_the_one_that_was_told(processes: Processes, daemon: Daemon) -> None:
    """What the node kept of the former epoch does not make it take the database for an older copy."""
    processes.serve("node").terminate()
    assert Path(f"{daemon.file}.head").exists()
    told = daemon.run("migrate", "--new-epoch").stdout.splitlines()[-1]
    processes.serve("node").terminate()
    ((epoch,),) = _sql(daemon.file, "SELECT epoch FROM log_heads")
    assert f"the log has the new epoch {epoch};" in told


# --- check -------------------------------------------------------------------------------------------------------


def test_check_before_the_first_start_is_fine_and_makes_nothing(daemon: Daemon) -> None:
    checked = daemon.run("check")
    assert checked.returncode == 0
    assert re.search(r"^data_dir +\S+/node +EVENTD_DATA_DIR$", checked.stdout, re.MULTILINE)
    assert "does not exist yet: `serve` creates it" in checked.stdout
    assert not daemon.folder.exists()


def test_check_names_every_setting_that_is_wrong(daemon: Daemon) -> None:
    checked = daemon.run("check", "-o", "json", "--log-level", "loud", env={"EVENTD_API_LISTEN": "x"})
    assert one_line(checked, 4) == "2 of 2 checks failed (a node would not start)"
    details = [check["detail"].split(":")[0] for check in json.loads(checked.stdout)["checks"]]
    assert sorted(details) == ["--log-level", "EVENTD_API_LISTEN"]


def test_keys_that_a_database_may_hold_are_not_called_missing_while_it_is_down(daemon: Daemon) -> None:
    env = {"EVENTD_DATABASE_URL": "postgresql+psycopg://me@127.0.0.1:1/db", "EVENTD_API_LISTEN": "0.0.0.0:8780"}
    checked = daemon.run("check", "-o", "json", env=env)
    found = {check["name"]: check["state"] for check in json.loads(checked.stdout)["checks"]}
    assert (checked.returncode, found["api keys"], found["database"]) == (4, "warning", "failed")
    served = daemon.run("serve", env=env)
    assert served.returncode == 1
    assert "Connection refused" in served.stderr
    assert "key create" not in served.stderr


def test_check_shows_no_secret(daemon: Daemon, tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text("postgresql+psycopg://me:geheim@127.0.0.1:1/db")
    env = {"EVENTD_API_KEYS": "topsecret:r", "EVENTD_DATABASE_URL_FILE": str(url)}
    checked = daemon.run("check", env=env)
    assert checked.returncode == 4
    assert "me:***@127.0.0.1" in checked.stdout
    assert "an API key is required" in checked.stdout
    for secret in ("geheim", "topsecret"):
        assert secret not in checked.stdout + checked.stderr


def test_a_group_to_run_alone_that_nobody_declared_is_said(processes: Processes, daemon: Daemon) -> None:
    node = processes.serve("node", env={"EVENTD_GROUP": "egde"})
    told = "EventGroup egde is not declared (declared: none)"
    logged = [json.loads(line) for line in node.log().splitlines()]
    assert [line["warning"] for line in logged if line["msg"] == "group missing"] == [told]
    checked = daemon.run("check", "--group", "egde")
    assert (checked.returncode, f"warning  {told}" in checked.stdout) == (0, True)


def test_check_prints_its_rows_in_every_format(daemon: Daemon) -> None:
    wide, names = daemon.run("check", "-o", "wide").stdout, daemon.run("check", "-o", "name").stdout
    assert re.search(r"^SETTING +VALUE +FROM$", wide, re.MULTILINE)
    assert re.search(r"^port_file +- +default$", wide, re.MULTILINE)
    assert re.search(r"\n\nCHECK +STATE +DETAIL\n", wide)
    assert names.splitlines() == ["api keys", "folder", "database"]
    assert daemon.run("check", "-o", "yaml").stdout.startswith("ok: true\n")


def test_check_finds_a_damaged_file(daemon: Daemon) -> None:
    daemon.make_database()
    _sql(daemon.file, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(daemon.file.read_bytes())
    content[3 * 8192 : 4 * 8192] = b"\xff" * 8192
    daemon.file.write_bytes(content)
    checked = daemon.run("check", "-o", "json")
    assert checked.returncode == 4
    assert "failed" in {check["state"] for check in json.loads(checked.stdout)["checks"]}
    assert "Traceback" not in checked.stderr


def test_check_says_when_the_folder_cannot_hold_a_database(daemon: Daemon) -> None:
    daemon.folder.write_text("a file, no folder")
    checked = daemon.run("check")
    assert checked.returncode == 4
    assert "Traceback" not in checked.stderr


def test_output_that_nobody_reads_is_no_traceback(processes: Processes, daemon: Daemon) -> None:
    command = [*DAEMON, "version"]
    script = "import subprocess, sys; c = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); c.stdout.close()"
    ended = processes.run([sys.executable, "-c", f"{script}; sys.exit(c.wait())", *command])
    assert (ended.returncode, ended.stderr) == (1, "")


def test_version(daemon: Daemon) -> None:
    assert re.fullmatch(r"routerd-eventd \d+\.\d+\.\d+\n", daemon.run("version").stdout)
    assert daemon.run("--version").stdout == daemon.run("version").stdout


def test_a_command_offers_the_settings_that_it_uses(daemon: Daemon) -> None:
    from eventd.settings.model import Settings, flag_of

    every = {flag for name in Settings.model_fields if (flag := flag_of(name))}
    used = {"serve": every, "check": every, "migrate": {"--data-dir", "--database", "--database-url-file"}}
    for command, flags in used.items():
        shown = daemon.run(command, "--help", env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).stdout
        assert every & set(shown.split()) == flags


def test_migrate_ignores_settings_of_a_node_on_its_command_line(daemon: Daemon) -> None:
    migrated = daemon.run("migrate", "--plan", "--workers", "none", "--lake", "")
    assert (migrated.returncode, daemon.folder.exists()) == (0, False)
    assert migrated.stderr == "".join(
        f'note: {option} has no effect on "migrate"; leave it out\n' for option in ("--workers", "--lake")
    )


def _sql(file: Path, statement: str) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


# --- doctor beside a node ------------------------------------------------------------------------------------------

GROUP = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec: {nodeName: a, auth: {secretFile: %s}, listen: {address: 127.0.0.1, port: %d}}
"""


def test_doctor_fails_beside_a_node_that_is_not_ready(processes: Processes, daemon: Daemon) -> None:
    node = processes.serve("node", env={"EVENTD_API_KEYS": "secret-key:read"})
    here = {"EVENTD_DATA_DIR": str(daemon.folder)}
    secret = processes.directory / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        declared = GROUP % (secret, port)
        assert processes.control("apply", "-f", "-", stdin=declared, env=here).returncode == 0
        wait_for(lambda: node.get("/readyz")[0] == 503, "the group to find its port taken", every=0.1)
        told = processes.control("doctor", env=here)
        assert told.returncode == 4, told
        line = next(line for line in told.stdout.splitlines() if "node readiness" in line)
        assert "the node is not ready" in line
        assert f"group edge: EventGroup 'edge': cannot listen on 127.0.0.1 port {port}" in line
        assert processes.control("doctor", "--group", "edge", env=here).returncode == 4
        far = {"EVENTD_SERVER": node.url, "EVENTD_API_KEY": "secret-key"}
        told = processes.control("doctor", env=far)
        assert (told.returncode, "cannot listen on" in told.stdout) == (4, True), told
    wait_for(lambda: node.get("/readyz")[0] == 200, "the group to listen", every=0.25)
    told = processes.control("doctor", env=here)
    assert (told.returncode, "readiness" in told.stdout) == (0, False), told


def test_doctor_says_where_a_node_does_not_answer(processes: Processes, daemon: Daemon) -> None:
    node = processes.serve("node")
    lock = daemon.folder / "eventd.db.lock"
    pid, told = lock.read_text().splitlines()
    assert (pid, told.split()[0]) == (str(node.pid), f"127.0.0.1:{node.port}")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    lock.write_text(f"{node.pid}\n127.0.0.1:{port} 0\n")
    beside = {"EVENTD_DATA_DIR": str(daemon.folder), "EVENTD_LOCAL_SOCKET": "off"}
    told = processes.control("doctor", env=beside)
    assert told.returncode == 4, told
    assert f"process {node.pid} serves this database, but does not answer at http://127.0.0.1:{port}" in told.stdout
    lock.write_text(f"{node.pid}\n")
    told = processes.control("doctor", env=beside)
    assert told.returncode == 0, told
    assert "skip    node readiness" in told.stdout
    assert "routerctl doctor --server URL" in told.stdout


def test_a_command_beside_a_node_counts_waits_by_the_clock_of_the_node(processes: Processes) -> None:
    """Otherwise a step of the wall clock since the node's start would move the windows of what the command stores."""
    node = processes.serve("node")
    folder = processes.directory / "node"

    async def origin() -> int:
        gateway = LocalGateway(load({"data_dir": str(folder)}, {}))
        try:
            await gateway.call("groups.status")
            clock = gateway._clock
            assert isinstance(clock, SystemClock)
            return clock.origin
        finally:
            await gateway.close()

    lock = folder / "eventd.db.lock"
    told = int(lock.read_text().splitlines()[1].split()[1])
    assert asyncio.run(origin()) == told
    lock.write_text(lock.read_text().replace(str(told), str(told - 7)))
    assert asyncio.run(origin()) == told - 7, "it is what the node tells"
    lock.write_text(lock.read_text().replace(str(told - 7), "5"))
    node.kill9()
    assert asyncio.run(origin()) != 5, "what a killed node has left means nothing"


@pytest.mark.parametrize(
    ("listen", "keys", "state", "detail"),
    [
        ("127.0.0.1:0", "", "ok", "neither keys nor tenants: every client that reaches 127.0.0.1:0"),
        ("0.0.0.0:5000", "", "failed", "other machines can reach the QUIC listener on 0.0.0.0:5000"),
        ("0.0.0.0:5000", "key:r", "ok", "a token is required; 0 tenants declared"),
    ],
)
def test_check_says_who_may_use_streams(daemon: Daemon, listen: str, keys: str, state: str, detail: str) -> None:
    checked = daemon.run("check", "-o", "json", env={"EVENTD_QUIC_LISTEN": listen, "EVENTD_API_KEYS": keys})
    (found,) = [check for check in json.loads(checked.stdout)["checks"] if check["name"] == "streams"]
    assert (found["state"], found["detail"][: len(detail)]) == (state, detail)
