"""`--watch`, Ctrl-C and closed pipes: as processes, because signals and pipes need them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Control
from tests.support.fork_server import shell_command, shell_files, spawn
from tests.support.processes import CONTROL


def without_settings() -> dict[str, str]:
    """This environment without variables that would configure a command."""
    return {name: value for name, value in os.environ.items() if not name.startswith("EVENTD_")}


class Watch:
    """A `routerctl` that stays."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process: subprocess.Popen[str] = spawn(
            [*CONTROL, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=without_settings(),
        )

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C; the exit code, and what it said on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Watch]


@pytest.fixture
def edge(control: Control) -> Control:
    """A database with the group edge and the event e1."""
    control("apply", "-f", control.file(EDGE))
    control("fed", "event", "emit", "--type", "t", "--id", "e1")
    return control


@pytest.fixture
def watch(edge: Control) -> Iterator[Start]:
    """Start a command that stays; it ends with the test."""
    started: list[Watch] = []

    def start(*arguments: str) -> Watch:
        started.append(Watch(edge.folder, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_watch_shows_what_is_there_and_then_what_comes(edge: Control, watch: Start) -> None:
    watching = watch("federation", "event", "list", "--watch")
    assert watching.line().split()[0] == "ID"
    assert watching.line().split()[0] == "e1"
    edge("fed", "event", "emit", "--type", "t", "--id", "e2")
    assert watching.line().split()[0] == "e2"
    assert watching.interrupt() == (0, "")


def test_a_watch_in_json_is_a_line_an_event(edge: Control, watch: Start) -> None:
    watching = watch("fed", "event", "list", "-w", "-o", "json", "--type", "u")
    edge("fed", "event", "emit", "--type", "t", "--id", "e2")
    edge("fed", "event", "emit", "--type", "u", "--id", "e3")
    assert json.loads(watching.line())["id"] == "e3"
    assert watching.interrupt() == (0, "")


def test_watched_links_are_shown_again_when_they_change(edge: Control, watch: Start) -> None:
    watching = watch("fed", "links", "--watch", "-o", "json")
    assert json.loads(watching.line())["state"] == "running"
    edge("fed", "pause", "cloud")
    assert json.loads(watching.line())["state"] == "paused"
    assert watching.interrupt() == (0, "")


def test_a_watch_and_newest_do_not_go_together(edge: Control) -> None:
    assert edge("fed", "event", "list", "--watch", "--newest", code=2).err.startswith("error: --watch shows")
    told = edge("fed", "event", "list", "--watch", "--history", "verified", code=2).err
    assert "before they are checked: leave out --watch or --history verified" in told


def test_a_reader_that_goes_away_ends_the_command_quietly(edge: Control) -> None:
    lines = "".join(f'{{"type":"t","payload":{{"k":"{"v" * 500}"}}}}\n' for _ in range(1000))
    edge("fed", "event", "emit", "--stdin", stdin=lines)
    told = subprocess.run(
        ["sh", "-c", f"{shell_command(CONTROL[-1])} fed event list --limit 0 -o json | head -1"],
        capture_output=True,
        text=True,
        cwd=edge.folder,
        env=without_settings(),
        pass_fds=shell_files(),
        timeout=60,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("[\n", "")
