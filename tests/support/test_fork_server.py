"""A forked command behaves like one that is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.child_processes import is_running
from tests.support.fork_server import spawn
from tests.support.processes import CONTROL, DAEMON, Processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere commands are started")
BOTH = pytest.mark.parametrize("forks", [True, False], ids=["forked", "started"])


@pytest.fixture
def how(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not forks:
        monkeypatch.setattr(fork_server, "PRELOADED", ())


@BOTH
@pytest.mark.usefixtures("how")
def test_status_output_and_errors(processes: Processes) -> None:
    done = processes.run([*DAEMON, "version"])
    assert (done.returncode, done.stdout[:15], done.stderr) == (0, "routerd-eventd ", "")
    refused = processes.run([*DAEMON, "serve", "--no-such-flag"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--no-such-flag" in refused.stderr


@BOTH
@pytest.mark.usefixtures("how")
def test_environment_and_folder(processes: Processes) -> None:
    done = processes.run([*DAEMON, "migrate"], env={"EVENTD_DATA_DIR": "here"})
    assert done.returncode == 0, done.stderr
    assert (processes.directory / "here" / "eventd.db").exists()


@BOTH
@pytest.mark.usefixtures("how")
def test_input_and_a_signal_from_outside(processes: Processes) -> None:
    env = processes.node_environment("a")
    child = spawn(
        [*CONTROL, "apply", "-f", "-"],
        env={**os.environ, **env},
        cwd=processes.directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def test_what_the_interpreter_reads_at_its_start_needs_a_start(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork(*_: object) -> int:
        pytest.fail("it is forked")

    monkeypatch.setattr(fork_server._Server, "fork", fork)
    done = processes.run([*DAEMON, "version"], env={"PYTHONWARNINGS": "ignore"})
    assert done.returncode == 0


STARTER = """
import subprocess, sys
from eventd.cli import routerctl
told = "import os; print(os.getppid(), open('/proc/self/cmdline').read().count('getppid'))"
for code in (told, "import eventd.cli; " + told):
    child = subprocess.Popen([sys.executable, "-c", code, "demo"], stdout=subprocess.PIPE, text=True)
    print(child.communicate()[0], child.returncode, end=" ", flush=True)
raise SystemExit(subprocess.call([sys.executable, "-m", "eventd.cli.routerctl", "--no-such-option"]))
"""


@BOTH
@pytest.mark.usefixtures("how")
def test_what_a_command_starts_are_its_children(processes: Processes) -> None:
    starter = processes.start("starter", [sys.executable, "-c", STARTER, "demo"])
    assert starter.wait_exit() == 2, starter.log()
    told = starter.log()
    assert told.split()[:6] == [str(starter.pid), "2", "0"] * 2
    assert "--no-such-option" in told


def test_a_fork_shows_its_command_line(processes: Processes) -> None:
    node = processes.serve("a", "--log-level", "debug")
    shown = Path(f"/proc/{node.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert shown == [word.encode() for word in (*DAEMON, "serve", "--log-level", "debug")]


def test_what_a_command_starts_is_not_ended_with_it(processes: Processes) -> None:
    """Ending it is for the product to do, and for its tests to show."""
    code = (
        "import os, signal, subprocess, sys; from eventd.cli import routerctl\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; import eventd.cli; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    starter = processes.start("starter", [sys.executable, "-c", code, "demo"])
    assert starter.wait_exit() == -signal.SIGKILL
    child = int(starter.log())
    assert is_running(child)
    os.kill(child, signal.SIGKILL)
