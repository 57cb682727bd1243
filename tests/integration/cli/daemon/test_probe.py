"""`routerd-eventd probe`, as a container runs it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eventd.cli.daemon.probe import MOST_BYTES, Probe, ProbeFailed, _split, read_words, run_probe
from eventd.cli.routerd_eventd_commands import app
from eventd.net.address import Address
from tests.support.declared import group
from tests.support.ports import free_port
from tests.support.processes import DAEMON, Processes
from tests.support.waiting import wait_for

KEY = "k" * 32
LOADED = """
import sys
sys.argv = ["routerd-eventd", "probe", "--server", sys.argv[1]]
from eventd.cli.routerd_eventd import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
SLOW = {"aiohttp", "asyncio", "click", "http", "msgspec", "pydantic", "sqlalchemy", "ssl", "typer", "urllib", "yaml"}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives this answer to each request; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield "127.0.0.1:{}".format(*listening.getsockname()[1:])
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_node_is_alive_and_ready_and_then_not(processes: Processes) -> None:
    node = processes.serve("node")
    here = {"EVENTD_DATA_DIR": str(processes.directory / "node")}  # it chose its port: the folder tells which
    alive, ready = (processes.run([*DAEMON, "probe", *words], env=here) for words in ([], ["--ready"]))
    assert [(done.returncode, done.stdout, done.stderr) for done in (alive, ready)] == [
        (0, "alive\n", ""),
        (0, "ready\n", ""),
    ]
    named = processes.run([*DAEMON, "probe", "--timeout", "30s", "--server", f"{node.url}/"])
    assert (named.returncode, named.stdout) == (0, "alive\n"), named.stderr
    node.kill9()
    for told, env in ((node.port, here), (free := free_port(), {"EVENTD_API_LISTEN": f"0.0.0.0:{free}"})):
        gone = processes.run([*DAEMON, "probe"], env=env)
        assert (gone.returncode, gone.stdout) == (1, "")
        assert gone.stderr == (
            f"error: cannot reach 127.0.0.1 port {told}: Connection refused"
            " (check that the node runs, or name its API with --server)\n"
        )


def test_what_is_not_ready_is_said(processes: Processes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    node = processes.serve("node")
    here = {"EVENTD_DATA_DIR": str(processes.directory / "node")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        declared = json.dumps(group("a", port=taken.getsockname()[1], secret=secret))
        done = processes.control("apply", "-f", "-", stdin=declared, env=here)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: node.get("/readyz")[0] == 503, "the group to find its port taken", every=0.1)
        told = processes.run([*DAEMON, "probe", "--ready"], env=here)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("error: group edge: ")
    assert "cannot listen on" in told.stderr


def test_guarded_probes_need_a_key(processes: Processes, tmp_path: Path) -> None:
    env = {"EVENTD_API_KEYS": f"{KEY}:read", "EVENTD_PROBE_AUTH": "1"}
    node = processes.serve("node", env=env, ready=False)
    wait_for(node.port_file.exists, "the node to listen")
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    with pytest.raises(ProbeFailed, match="requires a key for probes: give one with --key-file"):
        run_probe(Probe(server=node.url), {})
    assert run_probe(Probe(ready=True, server=node.url, key_file=str(file)), {}) == "ready"
    assert run_probe(Probe(server=node.url), {"EVENTD_API_KEY": KEY}) == "alive"
    assert run_probe(Probe(), {"EVENTD_SERVER": node.url, "EVENTD_API_KEY_FILE": str(file)}) == "alive"


def test_nothing_slow_is_loaded(processes: Processes) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as server:
        done = subprocess.run([sys.executable, "-c", LOADED, server], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert SLOW & set(done.stderr.splitlines()[-1].split()) == set()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 503 Unavailable\r\n\r\n[+]a ok\n[-]b: no\n[-]c: not\nreadyz failed\n", "^b: no; c: not$"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nno", "answers with HTTP status 404"),
        (b"SSH-2.0-x\r\n", "is not the API of a node"),
        (b"HTTP/1.1 yes\r\n\r\n", "is not the API of a node"),
        (b"", "is not the API of a node"),
        (b"x" * (4 * MOST_BYTES), "is not the API of a node|cannot reach"),
    ],
)
def test_an_odd_answer_is_no_sign_of_life(answer: bytes, told: str) -> None:
    with answering(answer) as server, pytest.raises(ProbeFailed, match=told):
        run_probe(Probe(ready=True, server=server, seconds=10), {})


@pytest.mark.parametrize("server", ["", "ftp://a:1", "http://", "a:b", "a:0", "a:65536", "http://:80", "[::1]x"])
def test_a_wrong_address_is_quoted(server: str) -> None:
    with pytest.raises(ProbeFailed, match=r"is not an address of a node|cannot reach"):
        run_probe(Probe(server=server or " ", seconds=1), {})


@pytest.mark.parametrize(
    "server", ["http://a:1", "http://a", "http://a/base/", "https://a", "http://[::1]:7", "http://[::1]"]
)
def test_an_address_means_what_it_means_to_routerctl(server: str) -> None:
    asked = Address.parse(server)
    assert _split(server) == (asked.secure, asked.host, asked.port, asked.prefix)


def test_a_silent_port_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ProbeFailed, match=f"cannot reach 127.0.0.1 port {port}: no answer in time"):
            run_probe(Probe(server=f"http://127.0.0.1:{port}", seconds=0.05), {})


@pytest.mark.parametrize(
    ("words", "probe"),
    [
        ([], Probe()),
        (["--ready", "--standby-ok"], Probe(ready=True, standby_ok=True)),
        (
            ["--server=http://a:1", "--data-dir", "d", "--key-file=k"],
            Probe(server="http://a:1", data_dir="d", key_file="k"),
        ),
        (["--help"], None),
        (["--timeout", "1s"], None),
        (["--server"], None),
        (["--server", "--ready"], None),
        (["--server="], None),
        (["--redy"], None),
        (["now"], None),
    ],
)
def test_the_short_way_reads_what_it_knows_and_leaves_the_rest(words: list[str], probe: Probe | None) -> None:
    assert read_words(words) == probe


@pytest.mark.parametrize(
    "words", [["--server"], ["--server="], ["--redy"], ["now"], ["--timeout", "0s"], ["--timeout", "5"]]
)
def test_the_full_command_line_refuses_mistakes(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["probe", *words]).exit_code == 2
