"""The command top: once in a pipe, and on a terminal of 80 by 24 that it leaves as it was."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api, Control, everywhere
from tests.integration.cli.federation.test_watching import without_settings
from tests.support.processes import CONTROL
from tests.support.waiting import wait_for

ENDED = b"\x1b[?1049l"
"""Leaves the alternate screen."""


class Terminal:
    """A command on a terminal of its own, of 80 columns and 24 lines."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (24, 80))
        self._before = termios.tcgetattr(self._theirs)
        os.set_blocking(self._ours, False)
        self.shown = b""
        self.process = subprocess.Popen(
            [*CONTROL, *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            cwd=folder,
            env=without_settings() | {"TERM": "xterm", "COLUMNS": "", "LINES": ""},
        )

    def has(self, words: str) -> bool:
        """Return whether these words have been shown since `press`."""
        with contextlib.suppress(BlockingIOError):
            self.shown += os.read(self._ours, 1 << 16)
        return words in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown.decode(errors="replace"))

    def wait_for(self, words: str) -> None:
        wait_for(lambda: self.has(words), words, seconds=30)

    def press(self, keys: str) -> None:
        self.shown = b""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait for the end; return the exit status. The terminal must be as it was."""
        code = self.process.wait(20)
        # what a process wrote last may reach our end of the terminal after the process has ended
        wait_for(lambda: self.has("") and ENDED in self.shown, "the alternate screen to be left")
        assert b"\x1b[?25h" in self.shown, "the cursor is shown again"
        assert termios.tcgetattr(self._theirs) == self._before
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(sqlite_url: str, control: Control, tmp_path: Path) -> Iterator[Terminal]:
    """`top` with the API of a node that has one link."""
    with Api(sqlite_url) as api:
        control("--server", api.url, "apply", "-f", control.file(EDGE))
        opened = Terminal(tmp_path, "top", "--server", api.url)
        try:
            yield opened
        finally:
            opened.close()


@everywhere
def test_a_pipe_gets_the_rows_once(routerctl: Control) -> None:
    routerctl.edge()
    routerctl("topic", "put", "jobs", "--set", "type=queue")
    routerctl("topic", "write", "jobs", "1")
    assert routerctl("top").lines[1].split()[:3] == ["edge", "cloud", "running"]
    row = routerctl("top", "links", "--once", "-o", "json").json[0]
    assert (row["peer"], row["lagEvents"], row["perSecond"]) == ("cloud", 0, None)
    assert routerctl("top", "queues", "-o", "json").json[0]["ready"] == 1
    assert routerctl("top", "topics", "-o", "json").json == []
    assert routerctl("top", "callbacks", "-o", "name").out == ""
    assert routerctl("top", "--failing", "-o", "json").json == []
    assert routerctl("top", "--filter", "CLO", "-o", "name").lines == ["edge/cloud"]


def test_keys_change_the_screen_and_q_ends_it(terminal: Terminal) -> None:
    terminal.wait_for("links: 1 of 1, by LAG")
    terminal.wait_for("GROUP  PEER   STATE    NOW/S  1M/S  WAITING  LAG  DEAD  LAST_ERROR")
    terminal.wait_for("edge   cloud  running")
    terminal.press("f")
    terminal.wait_for("links: 0 of 1, by LAG, failing only")
    terminal.press("f/clou")
    terminal.wait_for("links: 1 of 1, by LAG, filter: clou_")
    terminal.press("\r3")
    terminal.wait_for("queues: 0 of 0, by READY, filter: clou")
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_terminal_clean(terminal: Terminal, number: int, code: int) -> None:
    terminal.wait_for("links: 1 of 1")
    terminal.process.send_signal(number)
    assert terminal.end() == code


def test_a_signal_leaves_the_terminal_clean_without_a_node(control: Control, tmp_path: Path) -> None:
    control.edge()
    terminal = Terminal(tmp_path, "top")
    try:
        terminal.wait_for("links: 1 of 1")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_a_node_that_ends_is_reported_below_the_last_rows(sqlite_url: str, control: Control, tmp_path: Path) -> None:
    api = Api(sqlite_url)
    with api:
        control("--server", api.url, "apply", "-f", control.file(EDGE))
        terminal = Terminal(tmp_path, "top", "--server", api.url)
        terminal.wait_for("links: 1 of 1")
    try:
        terminal.press("")
        terminal.wait_for("no answer, these are the last rows")
        assert terminal.has("cloud")
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        terminal.close()
