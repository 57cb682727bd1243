"""`federation event emit --stdin` with an input that stays open: nothing is held back, or lost on Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api, Control
from tests.integration.cli.federation.test_watching import without_settings
from tests.support.fork_server import spawn
from tests.support.processes import CONTROL
from tests.support.waiting import wait_for

EMIT = ("federation", "event", "emit", "--stdin")


@pytest.fixture
def edge(control: Control) -> Control:
    """A database with the group edge, beside which no node runs."""
    control("apply", "-f", control.file(EDGE))
    return control


@contextmanager
def emitting(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An `emit --stdin` whose standard input is open, as in a shell of its own."""
    process: subprocess.Popen[str] = spawn(
        [*CONTROL, *EMIT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=without_settings(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def lines(first: int, last: int) -> str:
    return "".join(f'{{"type": "t", "id": "e{n}"}}\n' for n in range(first, last + 1))


def stored(control: Control) -> list[str]:
    return control("fed", "event", "list", "-o", "name").lines


def test_lines_are_stored_while_the_input_is_open(edge: Control) -> None:
    with emitting(edge.folder) as process:
        write(process, lines(1, 20))
        wait_for(lambda: len(stored(edge)) == 20, "twenty events")
        write(process, lines(21, 21))
        wait_for(lambda: len(stored(edge)) == 21, "one more")
        out, err = process.communicate(lines(22, 22), timeout=20)
    assert (process.returncode, out, err) == (0, "22 events accepted: 22 new\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_input_and_what_was_read_is_reported(edge: Control, number: signal.Signals) -> None:
    with emitting(edge.folder) as process:
        write(process, lines(1, 20) + '{"type": "t", ')
        wait_for(lambda: len(stored(edge)) == 20, "twenty events")
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        out, err = process.communicate()
    assert out == "20 events accepted: 20 new\n"
    assert err == (
        "interrupted: lines before 21 are done; repeat from there; line 21 is unfinished and was not stored\n"
    )


def test_a_line_that_was_read_and_not_sent_when_the_signal_comes_is_stored(edge: Control) -> None:
    with emitting(edge.folder) as process:
        write(process, "{broken\n")
        assert process.stderr is not None
        assert process.stderr.readline().startswith("line 1: is not JSON")
        os.kill(process.pid, signal.SIGSTOP)
        write(process, lines(2, 3))
        process.send_signal(signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(20) == 130
        out, err = process.communicate()
    # Whether the lines or the signal come first is open; what is not stored is named.
    if "lines before 2" in err:
        assert (stored(edge), out) == ([], "0 events accepted\n")
    else:
        assert "lines before 4 are done" in err
        assert (sorted(stored(edge)), out) == (["e2", "e3"], "2 events accepted: 2 new\n")
    assert err.endswith("not stored: 1 line\n")


def test_the_same_goes_for_a_node_behind_its_api(control: Control, sqlite_url: str) -> None:
    with Api(sqlite_url) as api:
        remote = ("--server", api.url)
        control("apply", "-f", control.file(EDGE), *remote)
        with emitting(control.folder, *remote) as process:
            write(process, lines(1, 20))
            listed = ("fed", "event", "list", "-o", "name", *remote)
            wait_for(lambda: len(control(*listed).lines) == 20, "twenty events")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            out, err = process.communicate()
    assert out == "20 events accepted: 20 new\n"
    assert err == "interrupted: lines before 21 are done; repeat from there\n"
