"""Topics and keys with only the two commands, a node that is killed, and a key that is revoked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import spawn
from tests.support.ports import free_port
from tests.support.processes import CONTROL, Process, Processes, _clean_environment
from tests.support.waiting import wait_for


class NodeAtPort:
    """A node with a fixed port that commands call over the API."""

    def __init__(self, processes: Processes, listen: str = "127.0.0.1") -> None:
        self.processes = processes
        self.port = free_port()
        self.local = processes.node_environment("node")
        self.env = {"EVENTD_SERVER": f"http://127.0.0.1:{self.port}"}
        self.listen = {"EVENTD_API_LISTEN": f"{listen}:{self.port}", "EVENTD_DRAIN_TIMEOUT": "5s"}

    def serve(self, *, ready: bool = True) -> Process:
        return self.processes.serve("node", env=self.listen, ready=ready)

    def control(self, *arguments: str, local: bool = False, stdin: str | None = None) -> str:
        found = self.processes.control(*arguments, env=self.local if local else self.env, stdin=stdin)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that keeps running."""
        return spawn(
            [*CONTROL, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.processes.directory,
            env={**_clean_environment(), **self.env},
        )

    def data(self) -> list[int]:
        lines = self.control("topic", "read", "jobs", "-o", "json").splitlines()
        return [json.loads(line)["data"] for line in lines]


@pytest.fixture
def place(processes: Processes) -> NodeAtPort:
    return NodeAtPort(processes)


@pytest.fixture
def staying() -> Iterator[list[subprocess.Popen[str]]]:
    """Yield a list of running commands that are ended with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        each.kill()
        each.communicate()


def test_a_write_outlives_a_node_that_is_killed_and_nothing_is_written_twice(
    place: NodeAtPort, staying: list[subprocess.Popen[str]]
) -> None:
    node = place.serve()
    place.control("topic", "put", "jobs", "--set", "durability=fsync")
    watch, write = place.start("watch", "jobs", "-o", "json"), place.start("topic", "write", "jobs", "-")
    staying += [watch, write]
    assert write.stdin is not None
    assert watch.stdout is not None
    shown: list[str] = []
    for n in range(60):
        write.stdin.write(f"{n}\n")
        write.stdin.flush()
        if n == 20:
            shown.append(watch.stdout.readline())  # it has reached the node once, so it will wait for it
        if n in (20, 40):
            wait_for(lambda n=n: len(place.data()) > n - 10, "most of it to be written")  # type: ignore[misc]
            node.kill9()
            write.stdin.write(f"{n}.5\n")
            write.stdin.flush()
            node.start().wait_ready()
    out, err = write.communicate(timeout=60)
    assert (write.returncode, err) == (0, "")
    assert out == "topic/jobs: 62 records written at 1 to 62\n"
    expected = sorted([*range(60), 20.5, 40.5])
    assert place.data() == expected
    shown += [watch.stdout.readline() for _ in expected[1:]]
    assert [json.loads(line)["data"] for line in shown] == expected


def test_a_key_is_made_used_and_taken_away(processes: Processes, staying: list[subprocess.Popen[str]]) -> None:
    place = NodeAtPort(processes, listen="0.0.0.0")
    refused = processes.serve("node", env=place.listen, ready=False)
    assert refused.wait_exit() == 1
    assert "it has no keys" in refused.log()
    key = place.control("key", "create", "ops", local=True).strip()
    file = Path(processes.directory / "ops.key")
    file.write_text(key)
    refused.start().wait_ready()
    refusal = processes.control("topic", "write", "jobs", "1", env=place.env)
    assert (refusal.returncode, refusal.stderr.startswith("error: this API needs a key")) == (1, True)
    place.env["EVENTD_API_KEY_FILE"] = str(file)
    place.control("topic", "write", "jobs", "1")
    watch = place.start("watch", "jobs", "-o", "name")
    staying.append(watch)
    assert watch.stdout is not None
    assert watch.stdout.readline() == "jobs@1\n"
    place.control("key", "revoke", "ops", local=True)
    _, err = watch.communicate(timeout=30)
    assert (watch.returncode, err.startswith("error: this key is not known")) == (1, True)
    assert key not in refused.log() + err
