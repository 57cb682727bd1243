"""`routerctl db backup` and `restore` on real files: while a node writes, killed anywhere, and what peers receive
after."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventd.runtime.clock import SystemClock
from eventd.store.schema import migrations
from tests.integration.cli.conftest import Control
from tests.support.fresh import make_current
from tests.support.processes import CONTROL, Processes
from tests.support.running import NodeProcess
from tests.support.stored import read_file
from tests.support.waiting import wait_for

SIDECARS = ("-wal", "-shm", "-journal")

ON_A_TERMINAL = """
import os, pty, sys
from eventd.cli import routerctl
answer, *words = sys.argv[1:]
child, terminal = pty.fork()
if not child:
    sys.argv = ["routerctl", *words]
    routerctl.main()
shown = b""
try:
    while chunk := os.read(terminal, 1024):
        is_asked = b"[y/N]" in shown
        shown += chunk
        if not is_asked and b"[y/N]" in shown:  # the question may come in two chunks
            os.write(terminal, answer.encode())
except OSError:  # the command has closed its side
    pass
sys.stdout.write(shown.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

WITHOUT_ROOM = """
import resource, sys
from eventd.cli import routerctl
resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 10, 50 << 10))
sys.argv[0] = "routerctl"
routerctl.main()
"""

KILLED_AT_EVERY_STEP = """
import os, signal, sys
from eventd.cli import routerctl, routerctl_commands
from eventd.cli.gateway import lock
from eventd.cli.node import db
from eventd.log.core import head
from eventd.runtime import clock
from eventd.settings import model
from eventd.store.schema import migrations
STEPS = ("os.rename", "os.remove", "os.link", "os.chmod", "os.chown", "open", "sqlite3.connect", "tempfile.mkstemp")
def run(folder, point, words):
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    seen = 0
    def step(name, what):
        nonlocal seen
        if name in STEPS and folder in str(what):
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)
    sys.argv = ["routerctl", *(word.replace("{}", folder) for word in words)]
    routerctl.main()
root, words = sys.argv[1], sys.argv[2:]
for point in range(1, 200):
    os.system(f"cp -r {root}/start {root}/{point}")
    if run(f"{root}/{point}", point, words) == 0:
        break
print(point)
"""


def rows(file: Path, sql: str) -> list[Any]:
    """Read a database as the node would, its write-ahead log with it."""
    with closing(sqlite3.connect(file)) as conn:
        return conn.execute(sql).fetchall()


def ids(file: Path) -> list[str]:
    return [record.event_id for record in read_file(file)]


def epoch(file: Path) -> str:
    return str(rows(file, "SELECT epoch FROM log_heads")[0][0])


def assert_whole(file: Path) -> list[str]:
    """Fail for a damaged file or a log with gaps; return the ids of its events."""
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    [(following,)] = rows(file, "SELECT next_position FROM log_heads")
    records = list(read_file(file))
    assert [record.position for record in records] == list(range(1, following))
    return [record.event_id for record in records]


def beside(file: Path) -> list[str]:
    """What lies beside the file under a name made of its own, but for what stays beside a database."""
    return sorted(p.name for p in file.parent.iterdir() if file.name in p.name and p.name not in (file.name, *STAYING))


LOCK = "eventd.db.lock"
STAYING = (LOCK, "eventd.db.head")


class Node:
    """A database in a folder of its own, without a node, worked on by `routerctl` in this process."""

    def __init__(self, control: Control) -> None:
        self.run = control
        self.file = control.folder / "eventd-data" / "eventd.db"
        self.copy = control.folder / "copy.db"
        self.file.parent.mkdir(mode=0o700)
        make_current(f"sqlite:///{self.file}", now=SystemClock().now())
        control.edge()

    def emit(self, *names: str) -> None:
        lines = "\n".join(json.dumps({"id": name, "type": "t", "payload": {"text": "x" * 200}}) for name in names)
        self.run("federation", "event", "emit", "--stdin", stdin=lines)

    def backup(self, *arguments: str, code: int = 0) -> Any:
        done = self.run("db", "backup", str(self.copy), "-o", "json", *arguments, code=code)
        return done.json if code == 0 else done.err

    def restore(self, *arguments: str, code: int = 0) -> Any:
        done = self.run("db", "restore", str(self.copy), "--yes", "-o", "json", *arguments, code=code)
        return done.json if code == 0 else done.err


@pytest.fixture
def node(control: Control) -> Node:
    return Node(control)


# --- back up -----------------------------------------------------------------------------------------------------


def test_a_copy_is_one_file_that_tells_what_it_holds(node: Node) -> None:
    node.emit("e1", "e2")
    told = node.backup()
    assert told == {
        "file": str(node.copy),
        "size": node.copy.stat().st_size,
        "events": 2,
        "epoch": epoch(node.file),
        "database": str(node.file),
    }
    assert node.copy.stat().st_mode & 0o777 == 0o600
    assert beside(node.copy) == []
    assert ids(node.copy) == ["e1", "e2"]
    assert_whole(node.copy)
    table = node.run("db", "backup", str(node.copy), "--force").lines
    assert table[0].split() == ["FILE", "SIZE", "EVENTS", "EPOCH"]
    assert table[1].split() == [str(node.copy), str(told["size"]), "2", told["epoch"]]


def test_a_copy_can_be_read_where_nothing_can_be_written(node: Node) -> None:
    node.emit("e1")
    node.backup()
    with closing(sqlite3.connect(f"file:{node.copy}?mode=ro", uri=True)) as conn:
        assert conn.execute("SELECT count(*) FROM blocks").fetchone() == (1,)
    assert beside(node.copy) == []


def test_a_file_that_is_there_is_replaced_only_by_force(node: Node) -> None:
    node.copy.write_text("precious")
    told = node.backup(code=1)
    assert told == f"error: {node.copy} exists already (name another file, or replace it with --force)\n"
    assert node.copy.read_text() == "precious"
    node.backup("--force")
    assert_whole(node.copy)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", ".lock"])
def test_force_does_not_reach_the_database_itself(node: Node, suffix: str) -> None:
    node.copy = Path(f"{node.file}{suffix}")
    assert "belongs to the database itself" in node.backup("--force", code=1)
    node.copy = node.run.folder / "link"
    node.copy.hardlink_to(node.file)
    assert "belongs to the database itself" in node.backup("--force", code=1)
    assert_whole(node.file)


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_a_link_is_not_followed(node: Node, there: bool) -> None:
    """Another user of the folder may have made it."""
    other = node.run.folder / "other"
    if there:
        other.write_text("precious")
    node.copy.symlink_to(other)
    told = node.backup("--force", code=1)
    assert told == f"error: {node.copy} is a symbolic link (name the file itself)\n"
    assert node.copy.is_symlink()
    assert (other.read_text() if other.exists() else "") == ("precious" if there else "")


def test_force_does_not_reach_another_database_in_use(node: Node) -> None:
    with closing(sqlite3.connect(node.copy)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (x)")
        assert f"{node.copy}-shm exists, so {node.copy} may be a database in use" in node.backup(
            "--force", code=1
        ).replace("-wal", "-shm")


def test_where_no_copy_can_be_made_it_says_why(node: Node) -> None:
    node.copy = node.run.folder / "nowhere" / "copy.db"
    assert node.backup(code=3) == f"error: the folder {node.copy.parent} does not exist (create it first)\n"
    node.copy = node.run.folder
    assert "is not a file" in node.backup(code=1)
    told = node.run("db", "backup", "x.db", "--data-dir", "elsewhere", code=3).err
    assert told.startswith(f"error: the database {node.run.folder}/elsewhere/eventd.db does not exist")
    assert not (node.run.folder / "elsewhere").exists()


def test_it_does_not_go_through_the_api(node: Node) -> None:
    told = node.run("db", "backup", "x.db", "--server", "http://127.0.0.1:1", code=1).err
    assert told.startswith("error: backups need the database: they do not work through the API")


@pytest.mark.postgres
def test_on_postgres_it_names_what_to_use(control: Control, postgres_url: str) -> None:
    for words, tool in ((["backup", "x.db"], "pg_dump"), (["restore", "x.db", "--yes"], "pg_restore")):
        told = control("db", *words, "--database", postgres_url, code=1).err
        assert f"is on Postgres: use {tool}" in told
        assert "routerd-eventd migrate --new-epoch" in told


def test_a_damaged_database_does_not_replace_a_good_copy(node: Node) -> None:
    node.emit(*[f"e{number:03}" for number in range(200)])
    node.backup()
    before = node.copy.read_bytes()
    with node.file.open("r+b") as file:
        file.seek(8192 * 6)
        file.write(os.urandom(8192 * 4))
    told = node.backup("--force", code=1)
    assert "damaged" in told or "malformed" in told
    assert node.copy.read_bytes() == before
    assert beside(node.copy) == []


@pytest.mark.parametrize("words", [["backup", "{}", "--force"], ["restore", "{}", "--yes"]], ids=["backup", "restore"])
def test_a_disk_without_room_leaves_everything_as_it_was(node: Node, processes: Processes, words: list[str]) -> None:
    node.emit("e1", "e2")
    node.backup()
    before = (node.copy.read_bytes(), ids(node.file))
    command = ["db", *(word.format(node.copy) for word in words), "--data-dir", str(node.file.parent)]
    done = processes.run([sys.executable, "-c", WITHOUT_ROOM, *command])
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "copying to" in done.stderr
    assert (node.copy.read_bytes(), ids(node.file)) == before
    assert beside(node.copy) == beside(node.file) == []


def test_a_crashed_node_is_copied_with_its_write_ahead_log(processes: Processes) -> None:
    """By a backup, and as files, of a stopped machine's disk, say, which are then restored."""
    a = NodeProcess(processes, "a")
    a.join()
    a.emit("e1", "e2")
    a.kill9()
    raw, copy = processes.directory / "raw.db", processes.directory / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{a.file}{suffix}", f"{raw}{suffix}")
    wal = Path(f"{raw}-wal").read_bytes()
    assert len(wal) > 0
    done = processes.control("db", "backup", str(copy), env=processes.node_environment("a"))
    assert done.returncode == 0, done.stderr
    assert ids(copy) == ["e1", "e2"]
    done = processes.control("db", "restore", str(raw), "--yes", env={"EVENTD_DATA_DIR": "fresh"})
    assert done.returncode == 0, done.stderr
    assert ids(processes.directory / "fresh" / "eventd.db") == ["e1", "e2"]
    assert Path(f"{raw}-wal").read_bytes() == wal


def test_a_copy_made_while_a_node_writes_is_of_one_moment(processes: Processes) -> None:
    a = NodeProcess(processes, "a")
    a.join()
    stored: list[str] = []
    end = threading.Event()

    def write() -> None:
        for number in range(100_000):
            if end.is_set():
                return
            names = [f"e{number:05}-{at:03}" for at in range(50)]
            a.emit(*names)
            stored.extend(names)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(2):
            at_least = wait_for(lambda number=number: len(stored) > 300 * number and list(stored), "traffic")  # type: ignore[misc]
            copy = processes.directory / f"copy{number}.db"
            done = processes.control("db", "backup", str(copy), "-o", "json", env=processes.node_environment("a"))
            assert done.returncode == 0, done.stderr
            held = ids(copy)
            assert_whole(copy)
            assert held[: len(at_least)] == at_least
            assert len(held) == json.loads(done.stdout)["events"]
            assert len(held) % 50 == 0, "a transaction was cut in two"
    finally:
        end.set()
        writer.join(20)
    assert a.ids() == stored
    assert a.stop() == 0


# --- restore -----------------------------------------------------------------------------------------------------


def test_a_restore_brings_back_the_copy_keeps_the_other_and_begins_a_new_history(node: Node) -> None:
    node.emit("e1")
    node.backup()
    node.emit("e2")
    node.file.chmod(0o640)
    before, instance = epoch(node.file), rows(node.file, "SELECT instance FROM log_heads")
    told = node.restore()
    kept = Path(told["kept"])
    assert told == {
        "file": str(node.copy),
        "database": str(node.file),
        "kept": str(kept),
        "events": 1,
        "applied": [],
        "epoch": epoch(node.file),
        "previousEpoch": before,
    }
    assert told["epoch"] != before
    assert kept.name.startswith("eventd.db.before-restore-2")
    assert beside(node.file) == [kept.name]
    assert (ids(node.file), ids(kept)) == (["e1"], ["e1", "e2"])
    assert node.file.stat().st_mode & 0o777 == 0o640
    assert node.file.stat().st_nlink == kept.stat().st_nlink == 1
    assert epoch(node.copy) == before
    assert rows(node.file, "SELECT instance FROM log_heads") == instance, "the same database, with another history"
    assert_whole(node.file)
    node.emit("e3")
    assert ids(node.file) == ["e1", "e3"]


def test_what_was_kept_can_be_restored(node: Node) -> None:
    node.emit("e1")
    node.backup()
    node.emit("e2")
    node.copy = Path(node.restore()["kept"])
    second = Path(node.restore()["kept"])
    assert second != node.copy
    assert (ids(node.file), ids(second)) == (["e1", "e2"], ["e1"])


def test_it_says_in_words_what_it_did(node: Node) -> None:
    node.emit("e1")
    node.backup()
    before = epoch(node.file)
    done = node.run("db", "restore", str(node.copy), "--yes")
    (kept,) = [name for name in beside(node.file) if "before" in name]
    assert done.lines == [
        f"restored {node.file} from {node.copy}: 1 event",
        f"the previous database is kept: {node.file.parent / kept}",
        f"the log has the new epoch {epoch(node.file)}; the previous one was {before}",
    ]


def test_a_restore_works_where_there_is_no_database_yet(node: Node) -> None:
    node.emit("e1")
    node.backup()
    place = node.run.folder / "new" / "eventd.db"
    told = node.restore("--data-dir", str(place.parent))
    assert (told["database"], told["kept"]) == (str(place), None)
    assert place.stat().st_mode & 0o777 == 0o600
    assert ids(place) == ["e1"]


def test_a_database_behind_a_link_is_replaced_where_it_lies(node: Node) -> None:
    node.emit("e1")
    node.backup()
    real = node.run.folder / "disk" / "big.db"
    real.parent.mkdir()
    node.file.rename(real)
    node.file.symlink_to(real)
    node.emit("e2")
    told = node.restore()
    assert node.file.is_symlink()
    assert told["database"] == str(real)
    assert (ids(node.file), ids(Path(told["kept"]))) == (["e1"], ["e1", "e2"])


def test_a_restore_refuses_while_a_node_serves_and_takes_the_write_ahead_log_when_it_has_crashed(
    processes: Processes,
) -> None:
    a = NodeProcess(processes, "a")
    a.join()
    a.emit("e1")
    around = processes.node_environment("a")
    copy = processes.directory / "copy.db"
    assert processes.control("db", "backup", str(copy), env=around).returncode == 0
    late = [f"late{number:03}" for number in range(300)]
    a.emit(*late)
    refused = processes.control("db", "restore", str(copy), "--yes", env=around)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: process {a.process.pid} serves, migrates or restores this database")
    assert a.ids() == ["e1", *late]
    a.kill9()
    assert Path(f"{a.file}-wal").stat().st_size > 0
    done = processes.control("db", "restore", str(copy), "--yes", "-o", "json", env=around)
    assert done.returncode == 0, done.stderr
    kept = Path(json.loads(done.stdout)["kept"])
    assert beside(a.file) == [kept.name]
    assert ids(a.file) == ["e1"]
    assert ids(kept) == ["e1", *late]


@pytest.mark.parametrize("main", ["damaged", "gone"])
def test_a_database_that_cannot_be_opened_is_kept_as_it_lies_there(node: Node, main: str) -> None:
    node.emit("e1")
    node.backup()
    if main == "gone":
        node.file.unlink()
    else:
        node.file.write_bytes(b"no database at all" * 1000)
    for suffix in SIDECARS:
        Path(f"{node.file}{suffix}").write_bytes(b"stale" + suffix.encode())
    kept = node.restore()["kept"]
    assert (kept is None) == (main == "gone")
    (wal,) = node.file.parent.glob("eventd.db.before-restore-*-wal")
    assert wal.read_bytes() == b"stale-wal"
    if kept:
        assert Path(kept).read_bytes().startswith(b"no database")
    assert ids(node.file) == ["e1"]
    assert not [suffix for suffix in ("-shm", "-journal") if Path(f"{node.file}{suffix}").exists()]
    assert_whole(node.file)


def test_another_command_that_has_the_database_open_is_not_pulled_out_from_under(node: Node) -> None:
    node.emit("e1")
    node.backup()
    node.emit("e2")
    with closing(sqlite3.connect(node.file)) as other:
        other.execute("SELECT count(*) FROM blocks").fetchone()
        assert "another process locks the database" in node.restore(code=1)
        other.execute("UPDATE log_heads SET incarnation = incarnation")
        other.commit()
    assert ids(node.file) == ["e1", "e2"]
    assert beside(node.file) == []


def spoil(how: str, copy: Path) -> None:
    match how:
        case "missing":
            copy.unlink()
        case "empty":
            copy.write_bytes(b"")
        case "text":
            copy.write_text("a letter" * 1000)
        case "cut":
            os.truncate(copy, copy.stat().st_size // 2)
        case "damaged":
            with copy.open("r+b") as file:
                file.seek(8192 * 5)
                file.write(b"\xff" * 8192 * 3)
        case "foreign" | "newer" | "headless":
            statements = {
                "foreign": "DROP TABLE alembic_version",
                "newer": "UPDATE alembic_version SET version_num = '9999'",
                "headless": "DELETE FROM log_heads",
            }
            with closing(sqlite3.connect(copy)) as conn:
                conn.execute(statements[how])
                conn.commit()


@pytest.mark.parametrize(
    ("how", "told", "code"),
    [
        ("missing", "copy.db does not exist", 3),
        ("empty", "not a database of routerd-eventd", 1),
        ("text", "file is not a database", 1),
        ("cut", "malformed|damaged", 1),
        ("damaged", "malformed|damaged", 1),
        ("foreign", "not a database of routerd-eventd", 1),
        ("newer", "the schema '9999', which this version does not know (run a newer routerd-eventd", 1),
        ("headless", "no log head", 1),
    ],
)
def test_a_copy_that_is_no_good_changes_nothing(node: Node, how: str, told: str, code: int) -> None:
    node.emit(*[f"e{number:03}" for number in range(200)])
    node.backup()
    spoil(how, node.copy)
    before = node.file.read_bytes()
    said = node.restore(code=code)
    assert any(word in said for word in told.split("|")), said
    assert str(node.copy) in said
    assert said.count("\n") == 1
    assert node.file.read_bytes() == before
    assert beside(node.file) == []


def test_the_database_is_no_copy_of_itself(node: Node) -> None:
    node.copy = node.file
    assert "is the database itself" in node.restore(code=1)


def test_an_older_copy_is_migrated_before_it_takes_the_place(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node.emit("e1")
    node.backup()
    later = tmp_path / "later"
    shutil.copytree(migrations.migrations_folder(), later)
    (later / "versions" / "0002_more.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\nrevision = '9002'\n"
        f"down_revision = {migrations.NEWEST!r}\n"
        "def upgrade():\n    op.create_table('more', sa.Column('x', sa.Text))\n"
    )
    monkeypatch.setattr(migrations, "migrations_folder", lambda: later)
    monkeypatch.setattr(migrations, "NEWEST", "9002")
    assert node.restore()["applied"] == ["9002"]
    assert rows(node.file, "SELECT count(*) FROM more") == [(0,)]


def test_where_files_have_one_name_only_the_old_database_is_kept_as_a_copy(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    node.emit("e1")
    node.backup()
    node.emit("e2")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    kept = Path(node.restore()["kept"])
    assert (ids(node.file), ids(kept)) == (["e1"], ["e1", "e2"])
    assert beside(node.file) == [kept.name]


# --- asking ------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_needs_a_yes(node: Node, processes: Processes) -> None:
    node.emit("e1")
    node.backup()
    done = processes.control("db", "restore", str(node.copy), "--data-dir", str(node.file.parent), stdin="y\n")
    assert done.returncode == 2
    assert "there is no terminal to ask on: add --yes" in done.stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("\x03", 130)])
def test_on_a_terminal_it_asks(node: Node, processes: Processes, answer: str, code: int) -> None:
    node.emit("e1")
    node.backup()
    node.emit("e2")
    command = ["db", "restore", str(node.copy), "--data-dir", str(node.file.parent)]
    done = processes.run([sys.executable, "-c", ON_A_TERMINAL, answer, *command])
    assert done.returncode == code, done.stdout
    assert f"{node.copy} holds 1 event of the epoch" in done.stdout
    assert f"replace {node.file} with it? [y/N]" in done.stdout
    assert "Traceback" not in done.stdout
    assert ids(node.file) == (["e1"] if code == 0 else ["e1", "e2"])


# --- killed ------------------------------------------------------------------------------------------------------


def _prepare(node: Node, folder: Path) -> Path:
    """A folder with a crashed database of 3 events and a copy of 2; the root of many like it."""
    start = folder / "start"
    start.mkdir(parents=True)
    node.emit("e1", "e2")
    node.copy = start / "copy.db"
    node.backup()
    with closing(sqlite3.connect(node.file)) as holder:  # so that the write-ahead log is not folded in
        holder.execute("SELECT count(*) FROM blocks").fetchone()
        node.emit("e3")
        for suffix in ("", "-wal"):
            shutil.copy(f"{node.file}{suffix}", f"{start}/eventd.db{suffix}")
    assert Path(f"{start}/eventd.db-wal").stat().st_size > 0
    return folder


def _kill_at_every_step(processes: Processes, root: Path, *words: str) -> int:
    done = processes.run([sys.executable, "-c", KILLED_AT_EVERY_STEP, str(root), *words], seconds=100)
    assert done.returncode == 0, done.stderr
    points = int(done.stdout.split()[-1])
    assert 10 < points < 199, f"killed at {points} points: {done.stderr}"
    return points


def _state(folder: Path) -> tuple[Any, ...]:
    """What a kill has left, without the names, some of which are random."""
    return tuple(sorted((file.stat().st_size, file.stat().st_nlink) for file in folder.iterdir()))


def test_a_restore_killed_at_any_step_leaves_one_of_the_two_whole_and_the_next_clears_up(
    node: Node, processes: Processes
) -> None:
    root = _prepare(node, node.run.folder / "kills")
    points = _kill_at_every_step(
        processes, root, "db", "restore", "{}/copy.db", "--yes", "--state-file", "{}/eventd.db"
    )
    old, new, original = ["e1", "e2", "e3"], ["e1", "e2"], epoch(root / "start" / "copy.db")
    found = []
    for point in range(1, points + 1):
        file = root / str(point) / "eventd.db"
        found.append(assert_whole(file))
        assert (epoch(file) == original) == (found[-1] == old), "a restored history with the name of the old one"
        if found[-1] == new:
            (kept,) = file.parent.glob("eventd.db.before-restore-*")
            assert ids(kept) == old
    assert found == sorted(found, reverse=True), "it went back to the old one"
    assert old in found
    assert found[-1] == new
    assert found.count(new) > 1, "no kill came between the replacement and the end"

    left_by_kills = {_state(root / str(point)): point for point in range(1, points)}
    assert len(left_by_kills) > 4
    for point in left_by_kills.values():
        file = root / str(point) / "eventd.db"
        before = found[point - 1]
        node.copy = file.parent / "copy.db"
        kept = Path(node.restore("--state-file", str(file))["kept"])
        assert (ids(file), ids(kept)) == (["e1", "e2"], before)
        assert file.stat().st_nlink == kept.stat().st_nlink == 1
        left = [name for name in beside(file) if "before-restore" not in name]
        assert left == []


def test_a_backup_killed_at_any_step_leaves_the_last_one_or_the_new_one(node: Node, processes: Processes) -> None:
    root = _prepare(node, node.run.folder / "kills")
    points = _kill_at_every_step(
        processes, root, "db", "backup", "{}/copy.db", "--force", "--state-file", "{}/eventd.db"
    )
    found = []
    seen = set()
    for point in range(1, points + 1):
        copy = root / str(point) / "copy.db"
        state = _state(copy.parent)
        found.append(assert_whole(copy))
        assert ids(copy.parent / "eventd.db") == ["e1", "e2", "e3"]
        if state not in seen:
            seen.add(state)
            node.copy = copy
            node.backup("--force", "--state-file", str(copy.parent / "eventd.db"))
            assert beside(copy) == []
    assert sorted(set(map(len, found))) == [2, 3]
    assert len(seen) > 2


def _killed_at_random(
    processes: Processes, chance: random.Random, command: list[str], spoken: Callable[[], None]
) -> None:
    """Twice: run the command, kill it somewhere in its second half at the latest, and look."""
    begun = time.monotonic()
    assert processes.run([*CONTROL, *command]).returncode == 0
    whole = time.monotonic() - begun
    print(f"it takes {whole:.2f} s")  # noqa: T201
    for number in range(2):
        process = processes.start(f"killed{number}", [*CONTROL, *command])
        time.sleep(whole * (0.4 + 0.6 * chance.random()))
        if process.running:
            assert process.kill9() in (0, -signal.SIGKILL)
        spoken()


def test_killed_at_random_with_many_events_both_are_whole(
    node: Node, processes: Processes, chance: random.Random
) -> None:
    many = [f"e{number:05}" for number in range(1000)]
    node.emit(*many)
    node.backup()
    node.emit("late")
    at = ["--data-dir", str(node.file.parent)]

    def copy_is_whole() -> None:
        assert assert_whole(node.copy)[:1000] == many

    def database_is_whole() -> None:
        assert assert_whole(node.file)[:1000] == many

    _killed_at_random(processes, chance, ["db", "backup", str(node.copy), "--force", *at], copy_is_whole)
    _killed_at_random(processes, chance, ["db", "restore", str(node.copy), "--yes", *at], database_is_whole)


# --- and then federate -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beyond", [False, True], ids=["behind-the-peer", "beyond-the-peer"])
def test_a_peer_that_knows_more_than_the_copy_gets_all_that_is_new(processes: Processes, beyond: bool) -> None:
    """With `beyond` the restored log is longer than all the peer ever saw when the two meet again."""
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    around = processes.node_environment("a")
    copy = processes.directory / "copy.db"
    a.emit("old1", "old2")
    b.emit("of-b1")
    a.wait_sent("b"), b.wait_sent("a")
    assert processes.control("db", "backup", str(copy), env=around).returncode == 0
    lost = [f"lost{number}" for number in range(5)]
    a.emit(*lost)
    b.emit("of-b2")
    a.wait_sent("b"), b.wait_sent("a")
    b.wait_holds({"old1", "old2", *lost})
    assert a.stop() == 0
    if beyond:
        assert b.stop() == 0
    done = processes.control("db", "restore", str(copy), "--yes", "-o", "json", env=around)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    a.start()
    new = [f"new{number:02}" for number in range(20 if beyond else 3)]
    a.emit(*new)
    if beyond:
        b.start()
    b.emit("of-b3")
    a.wait_sent("b"), b.wait_sent("a")
    b.wait_holds({"old1", "old2", *lost, *new})
    a.wait_holds({"of-b1", "of-b2", "of-b3"})
    assert b.ids(source="a") == ["old1", "old2", *lost, *new]
    assert sorted(a.ids(source="a")) == sorted(["old1", "old2", *new])
    assert b.counts()[0] == b.counts()[1], "an event was taken twice"
    assert epoch(a.file) == told["epoch"] != told["previousEpoch"]
    a.stop(), b.stop()
