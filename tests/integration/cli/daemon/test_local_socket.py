"""The local socket of a node, with real processes: who may use it, what replaces it, when the database is used."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventd.cli.daemon.probe import Probe, ProbeFailed, run_probe
from eventd.cli.gateway import node_socket
from eventd.cli.gateway.node_choice import NodeChoice
from eventd.cli.gateway.node_socket import SocketGateway, find_node
from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import Output
from eventd.net.local_socket import NAME, SocketFolder
from eventd.settings.identity import identify_file
from eventd.settings.location import locate
from tests.support.processes import CONTROL, DAEMON, Process, Processes
from tests.support.waiting import wait_for

NOBODY = 65534
KEYS = {"EVENTD_API_KEYS": "secret-key:read"}
WITH_KEY = {"Authorization": "Bearer secret-key"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")


class OverSocket(http.client.HTTPConnection):
    """HTTP over the local socket in a folder, which may have a long path."""

    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._folder = folder

    def connect(self) -> None:
        with SocketFolder(self._folder, None) as folder:
            found = folder.connect(10)
        assert found is not None, "no process listens at the socket"
        self.sock = found[0]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        self.request(method, path, content, {"Content-Type": "application/json", **headers})
        answer = self.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def folder(processes: Processes) -> Path:
    return processes.directory / "node"


def ask(folder: Path, path: str, **headers: str) -> tuple[int, bytes]:
    with contextlib.closing(OverSocket(folder)) as connection:
        return connection.ask("GET", path, **headers)


def find(folder: Path, **flags: str) -> tuple[bool, str]:
    """Return whether `routerctl` would use the socket of the node in the folder, or why not."""
    location = locate(str(folder), environ={}, **flags)
    assert location is not None
    node, problem = find_node(location)
    if node is not None:
        asyncio.run(node.close())
    return node is not None, problem.detail if problem else ""


def doctor(processes: Processes, folder: Path, *arguments: str) -> tuple[str, str] | None:
    """Return the detail and the remedy of doctor's check of the local socket; None if it finds no problem."""
    told = processes.control("doctor", "-o", "json", *arguments, env={"EVENTD_DATA_DIR": str(folder)})
    checks = json.loads(told.stdout)["checks"]
    found = [(check["detail"], check["remedy"]) for check in checks if check["name"] == "local socket"]
    return found[0] if found else None


def loads_the_database(processes: Processes, folder: Path, *arguments: str) -> bool:
    """Run `routerctl`; return whether it opened the database itself. If not, it must have loaded nothing slow."""
    command = [sys.executable, "-X", "importtime", *CONTROL[1:], *arguments]
    done = processes.run(command, env={"EVENTD_DATA_DIR": str(folder)})
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    if "eventd.store.engine.database" in loaded:
        return True
    assert loaded & {"pydantic", "aiohttp", "http.client", "email", "asyncio", "ssl", "yaml", "msgspec"} == set()
    return False


def metric(node: Process, name: str) -> float:
    lines = node.get("/metrics")[1].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"routerd_eventd_{name}"))


def in_log(node: Process, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["msg"] == event]


# --- a node and its commands ----------------------------------------------------------------------------------------


def test_commands_on_the_machine_use_the_node_without_a_key(processes: Processes, folder: Path) -> None:
    node = processes.serve("node", env=KEYS)
    about = (folder / NAME).lstat()
    assert (stat.S_ISSOCK(about.st_mode), stat.S_IMODE(about.st_mode)) == (True, 0o600)
    assert sorted(each.name for each in folder.iterdir() if "sock" in each.name) == [NAME]
    for path in ("/api/v1/status", "/v0/topics", "/metrics", "/healthz", "/api/v1/keys"):
        assert ask(folder, path)[0] == 200, path
    assert node.get("/api/v1/status")[0] == 401
    assert not loads_the_database(processes, folder, "get", "EventGroup")
    here = {"EVENTD_DATA_DIR": str(folder)}
    assert processes.control("topic", "put", "notes", env=here).returncode == 0
    listed = processes.control("topic", "list", "-o", "name", env=here)
    assert listed.stdout.split() == ["notes"], listed
    told = processes.control("federation", "status", env=here)
    assert told.stderr == f"note: process {node.pid} serves this database\n"
    refused = processes.control("db", "restore", "--yes", str(folder / "eventd.db"), "--data-dir", str(folder))
    assert refused.returncode == 1
    node.terminate()
    assert not (folder / NAME).exists()
    assert loads_the_database(processes, folder, "get", "EventGroup")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Path]]:
    """A node with a key, and its folder, for tests that change neither."""
    processes = Processes(tmp_path_factory.mktemp("shared"))
    try:
        yield processes.serve("node", env=KEYS), processes.directory / "node"
    finally:
        processes.close()


def test_a_foreign_page_or_host_gets_nothing(shared: tuple[Process, Path]) -> None:
    _, folder = shared
    assert ask(folder, "/api/v1/status", Host="evil.example")[0] == 403
    assert ask(folder, "/api/v1/status", Origin="http://evil.example")[0] == 403
    assert ask(folder, "/api/v1/status", Origin="http://localhost")[0] == 200


def test_a_request_for_another_node_is_refused_on_the_socket_alone(shared: tuple[Process, Path]) -> None:
    node, folder = shared
    for other in ({"Eventd-Database": "sqlite:1:2"}, {"Eventd-Listen": "127.0.0.1:1"}):
        status, answer = ask(folder, "/v0/topics", **other)
        assert (status, json.loads(answer)["error"]["code"]) == (421, "wrong_node")
        over_tcp, _ = node.get("/v0/topics", headers=other | WITH_KEY)
        assert over_tcp == 200, "it would only reveal what a node serves"


def test_every_header_that_names_a_node_counts(shared: tuple[Process, Path]) -> None:
    _, folder = shared
    mine = identify_file(folder / "eventd.db")
    for names, status in (((mine, mine), 200), ((mine, "sqlite:1:2"), 421), (("sqlite:1:2", mine), 421)):
        with contextlib.closing(OverSocket(folder)) as connection:
            connection.putrequest("GET", "/v0/topics")
            for name in names:
                connection.putheader("Eventd-Database", name)
            connection.endheaders()
            assert connection.getresponse().status == status, names


def test_the_workers_share_the_socket(processes: Processes, folder: Path) -> None:
    node = processes.serve("node", "--workers", "2", env=KEYS)
    with contextlib.closing(OverSocket(folder)) as one:
        assert one.ask("PUT", "/v0/topics/notes", {})[0] == 201
        other = _session_of_the_other_worker(folder, one)
        one.request("GET", other, headers={"Accept": "text/event-stream"})  # is proxied, and needs no key there, either
        answer = one.getresponse()
        assert (answer.status, answer.readline()[:6]) == (200, b"retry:")
    node.terminate()
    assert not (folder / NAME).exists()


def _session_of_the_other_worker(folder: Path, one: OverSocket) -> str:
    own = _begin_watch(one)

    def other() -> str:
        with contextlib.closing(OverSocket(folder)) as connection:
            session = _begin_watch(connection)
        return "" if session.partition(".")[0] == own.partition(".")[0] else session

    return wait_for(other, "the other worker to accept a connection", every=0.0)


def _begin_watch(connection: OverSocket) -> str:
    status, answer = connection.ask("POST", "/v0/watch", {"topics": {"notes": {"from_seq": 0}}})
    assert status == 200, answer
    return str(json.loads(answer)["stream_url"])


@pytest.mark.postgres
def test_a_node_on_postgres(processes: Processes, folder: Path, postgres_url: str) -> None:
    node = processes.serve("node", "--migrate", database_url=postgres_url)
    assert find(folder, database_url=postgres_url) == (True, "")
    other = postgres_url.rsplit("/", 1)[0] + "/another"
    assert find(folder, database_url=other) == (False, f"the node at {folder / NAME} serves another database")
    env = {"EVENTD_DATA_DIR": str(folder), "EVENTD_DATABASE_URL": postgres_url}
    told = processes.control("federation", "status", env=env)
    assert told.stderr == f"note: process {node.pid} serves this database\n"


async def test_a_command_survives_the_end_of_the_node(processes: Processes, folder: Path) -> None:
    node = processes.serve("node")
    choice = NodeChoice("", "", None, None, None, None, "", "", None, str(folder), None)
    session = Session(choice, Output("json", headers=True, colour=False))
    try:
        await session.call("groups.status")
        assert isinstance(session.gateway, SocketGateway)
        assert session.serving() == str(node.pid)
        node.terminate()
        await session.call("groups.status")
        assert not isinstance(session.gateway, SocketGateway)
        assert session.serving() == ""
    finally:
        await session.close()


def test_another_database_is_opened_by_the_command(shared: tuple[Process, Path], tmp_path: Path) -> None:
    _, folder = shared
    copy = tmp_path / "copy.db"
    shutil.copy(folder / "eventd.db", copy)
    wrong = f"the node at {folder / NAME} serves another database"
    assert find(folder, database_url=f"sqlite:///{copy}") == (False, wrong)
    link = tmp_path / "link.db"
    link.symlink_to(folder / "eventd.db")
    assert find(folder, database_url=f"sqlite:///{link}") == (True, "")
    assert find(tmp_path / "elsewhere", database_url=f"sqlite:///{folder}/eventd.db") == (True, "")


def test_a_switched_off_socket(processes: Processes, folder: Path) -> None:
    node = processes.serve("node", "--no-local-socket")
    assert not (folder / NAME).exists()
    assert in_log(node, "local socket unavailable") == []
    restart = "unless its setting local_socket is off on purpose, restart the node with local_socket = true"
    assert doctor(processes, folder) == (f"no node listens at {folder / NAME}", restart)
    assert doctor(processes, folder, "--server", node.url) is None, "on purpose"
    assert locate(str(folder), environ={"EVENTD_LOCAL_SOCKET": "off"}) is None


def test_a_frozen_node_is_passed_over(processes: Processes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_socket, "HELLO_SECONDS", 0.05)
    node = processes.serve("node")
    node.send(signal.SIGSTOP)
    assert find(folder) == (False, f"the node at {folder / NAME} does not answer: timed out")
    node.send(signal.SIGCONT)


# --- what may be at the socket's name -------------------------------------------------------------------------------


def test_the_socket_of_a_killed_node_is_replaced(processes: Processes, folder: Path) -> None:
    node = processes.serve("node")
    node.kill9()
    assert (folder / NAME).is_socket()
    assert find(folder) == (False, f"no node listens at {folder / NAME}")
    node.start()
    node.wait_ready()
    assert find(folder) == (True, "")


@pytest.mark.parametrize("planted", ["file", "link"])
def test_a_planted_file_is_replaced_reported_and_never_followed(
    processes: Processes, folder: Path, planted: str
) -> None:
    folder.mkdir(mode=0o700)
    victim = processes.directory / "victim"
    victim.write_text("untouched")
    if planted == "link":
        (folder / NAME).symlink_to(victim)
    else:
        (folder / NAME).write_text("planted")
    node = processes.serve("node")
    assert [line["path"] for line in in_log(node, "local socket replaces a file")] == [str(folder / NAME)]
    assert (folder / NAME).is_socket()
    assert not (folder / NAME).is_symlink()
    assert victim.read_text() == "untouched"
    assert find(folder) == (True, "")


@pytest.mark.parametrize(
    ("plant", "detail", "remedy"),
    [
        (
            lambda folder: (folder / NAME).mkdir(),
            "{folder}/eventd.sock is a directory and not the socket of the node",
            "remove it and restart the node",
        ),
        (
            lambda folder: folder.chmod(0o770),
            "other users may write to the folder {folder}, so no local socket in it is safe",
            "run chmod go-w {folder} and restart the node",
        ),
    ],
)
def test_a_node_without_a_usable_place_runs_without_the_socket(
    processes: Processes, folder: Path, plant: Any, detail: str, remedy: str
) -> None:
    folder.mkdir(mode=0o700)
    plant(folder)
    node = processes.serve("node")
    (line,) = in_log(node, "local socket unavailable")
    said = detail.format(folder=folder), remedy.format(folder=folder)
    assert (line["reason"], line["hint"]) == said
    assert [each.name for each in folder.iterdir() if each.is_socket()] == []
    assert doctor(processes, folder) == said
    assert doctor(processes, folder, "--server", node.url) == said


def test_what_takes_the_place_of_a_running_nodes_socket(processes: Processes, folder: Path) -> None:
    node = processes.serve("node")
    assert doctor(processes, folder, "--server", node.url) is None
    (folder / NAME).unlink()
    said = f"cannot find {folder / NAME}: No such file or directory", "restart the node"
    assert doctor(processes, folder, "--server", node.url) == said
    planted: list[tuple[Callable[[Path], Any], str]] = [
        (lambda place: place.symlink_to("eventd.db"), "a symbolic link"),
        (lambda place: place.write_text("planted"), "a file"),
        (lambda place: place.mkdir(), "a directory"),
    ]
    for plant, kind in planted:
        (folder / NAME).unlink(missing_ok=True)
        plant(folder / NAME)
        said = f"{folder / NAME} is {kind} and not the socket of the node", "remove it and restart the node"
        assert doctor(processes, folder) == said
    assert doctor(processes, folder, "--server", node.url) == said


def test_a_node_leaves_the_socket_of_a_living_node_until_that_ends(processes: Processes, folder: Path) -> None:
    first = processes.serve("node")
    at_first = (folder / NAME).stat().st_ino
    database = f"sqlite:///{processes.directory}/other.db"
    second = processes.serve("second", env={"EVENTD_DATA_DIR": str(folder), "EVENTD_DATABASE_URL": database})
    assert (folder / NAME).stat().st_ino == at_first
    (line,) = in_log(second, "local socket unavailable")
    words = f"another node answers at {folder / NAME}; the name is taken over when that node ends"
    step = "stop that node, or give each node a data_dir of its own"
    assert (line["reason"], line["hint"]) == (words, step)
    assert doctor(processes, folder, "--server", second.url) == (words, step)
    first.terminate()
    assert wait_for(lambda: find(folder, database_url=database)[0], "the second node to take the name over")
    second.terminate()
    assert sorted(each.name for each in folder.iterdir() if "sock" in each.name) == []


def test_a_folder_with_a_long_path(processes: Processes) -> None:
    deep = processes.directory / ("d" * 100) / ("e" * 100)
    processes.serve("node", env={"EVENTD_DATA_DIR": str(deep)})
    assert ask(deep, "/healthz")[0] == 200
    listed = processes.control("topic", "list", env={"EVENTD_DATA_DIR": str(deep)})
    assert listed.returncode == 0, listed
    assert not loads_the_database(processes, deep, "get", "EventGroup")


# --- other users ----------------------------------------------------------------------------------------------------

_CONNECT_AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
try:
    connection.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    print(connection.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""
_LISTEN_AS_NOBODY = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
listening.listen()
print("listens", flush=True)
print(listening.accept()[0].recv(100), flush=True)
"""


@needs_root
def test_another_user_is_refused_before_a_byte_is_read(processes: Processes) -> None:
    with short_folder() as folder:
        node = processes.serve("node", env={"EVENTD_DATA_DIR": str(folder)})
        folder.chmod(0o711)  # as far as an operator may go wrong without the node refusing the folder
        (folder / NAME).chmod(0o666)
        for _ in range(2):
            told = processes.run([sys.executable, "-c", _CONNECT_AS_NOBODY, str(folder / NAME)])
            assert told.stdout == "b''\n", told
        assert metric(node, 'listener_turned_away_total{group="",reason="local_other_user"}') == 2
        (line,) = in_log(node, "local connection refused")
        assert line["reason"].endswith(f"belongs to the user with the id {NOBODY}")
        node.terminate()


@needs_root
def test_a_server_of_another_user_gets_nothing(processes: Processes) -> None:
    with short_folder() as folder:
        node = processes.serve("node", env={"EVENTD_DATA_DIR": str(folder), "EVENTD_LOCAL_SOCKET": "no"})
        command = [sys.executable, "-c", _LISTEN_AS_NOBODY, str(folder / NAME)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as planted:
            assert planted.stdout is not None
            assert planted.stdout.readline() == "listens\n"
            assert find(folder) == (False, f"{folder / NAME} is the socket of another user")
            assert planted.stdout.readline() == "b''\n"
        node.terminate()


def test_a_link_to_a_socket_is_not_used(shared: tuple[Process, Path], tmp_path: Path) -> None:
    _, folder = shared
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / NAME).symlink_to(folder / NAME)
    (other / "eventd.db").symlink_to(folder / "eventd.db")
    assert find(other) == (False, f"{other / NAME} is a symbolic link and not the socket of the node")


def test_a_folder_that_others_may_write_to_is_not_used(processes: Processes, folder: Path) -> None:
    processes.serve("node")
    folder.chmod(0o777)
    assert find(folder) == (False, f"other users may write to the folder {folder}, so no local socket in it is safe")


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a folder that another user can reach by its path, unlike those of pytest."""
    folder = Path("/tmp") / f"eventd-socket-{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# --- limits, and probes ---------------------------------------------------------------------------------------------


def test_the_socket_has_connections_of_its_own(processes: Processes, folder: Path) -> None:
    node = processes.serve("node", env={"EVENTD_MAX_CONNECTIONS": "16", "EVENTD_MAX_SSE_CONNECTIONS": "0"})
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            connection = stack.enter_context(contextlib.closing(OverSocket(folder)))
            assert connection.ask("GET", "/healthz")[0] == 200
        with SocketFolder(folder, None) as opened:
            found = opened.connect(10)
        assert found is not None
        with found[0] as refused:  # answered without a request, for which it may be closed too soon
            assert refused.recv(1024).startswith(b"HTTP/1.1 503 ")
        assert node.get("/healthz")[0] == 200
        assert metric(node, 'listener_turned_away_total{group="",reason="local_full"}') == 1
        assert metric(node, "local_socket_connections") == 16
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", node.port)
        for _ in range(16):
            stack.enter_context(socket.create_connection(address)).sendall(b"GET")
        assert ask(folder, "/healthz")[0] == 200


def test_probes_use_the_socket(processes: Processes, folder: Path) -> None:
    node = processes.serve("node", env={**KEYS, "EVENTD_PROBE_AUTH": "1"}, ready=False)
    wait_for(node.port_file.exists, "the node to listen")
    here = {"EVENTD_DATA_DIR": str(folder)}
    assert run_probe(Probe(), here) == "alive"
    assert run_probe(Probe(ready=True), here) == "ready"
    with pytest.raises(ProbeFailed, match="requires a key"):  # of several nodes in one folder, the one that is meant
        run_probe(Probe(), {**here, "EVENTD_API_LISTEN": f"127.0.0.1:{node.port}"})
    (folder / NAME).unlink()
    with pytest.raises(ProbeFailed, match="requires a key"):
        run_probe(Probe(), here)


def test_a_command_does_not_replace_the_file_that_a_node_has_lost(processes: Processes, folder: Path) -> None:
    here = {"EVENTD_DATA_DIR": str(folder)}
    for value in ("0", "1"):
        assert processes.control("topic", "put", "t", env=here).returncode == 0
        assert processes.control("topic", "write", "t", value, env=here).returncode == 0
    node = processes.serve("node")
    assert processes.control("topic", "write", "t", "2", env=here).returncode == 0
    away = folder / "away.db"
    (folder / "eventd.db").rename(away)
    for command in (("topic", "write", "t", "3"), ("topic", "put", "u"), ("key", "create", "k")):
        refused = processes.control(*command, env=here)
        assert refused.returncode != 0, command
        assert "Traceback" not in refused.stderr
    assert not (folder / "eventd.db").exists()
    away.rename(folder / "eventd.db")
    wait_for(lambda: ask(folder, "/readyz")[0] == 200, "the node to have its file again")
    read = processes.control("topic", "read", "t", "-o", "name", env=here)
    assert len(read.stdout.split()) == 3, read
    node.kill9()
    (folder / "eventd.db").rename(away)
    refused = processes.control("topic", "write", "t", "4", env=here)
    assert refused.returncode == 1
    assert "is missing, but eventd.db-wal beside it may hold acknowledged data" in refused.stderr
    started = processes.start(
        "node again", [*DAEMON, "serve"], env={**processes.node_environment("node", database_url=None)}
    )
    assert started.wait_exit() != 0
    assert "may hold acknowledged data" in started.log()
    away.rename(folder / "eventd.db")
    read = processes.control("topic", "read", "t", "-o", "name", env=here)
    assert len(read.stdout.split()) == 3, read
