"""A forked command behaves like one that is started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.child_processes import is_running
from tests.support.fork_server import shell_command, shell_files, spawn
from tests.support.processes import CONTROL, DAEMON, Processes
from tests.support.topic_nodes import TopicNode
from tests.support.waiting import wait_for

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


@BOTH
@pytest.mark.usefixtures("how")
def test_a_shell_runs_a_command(processes: Processes) -> None:
    control = shell_command("eventd.cli.routerctl")
    script = f"""
        mkdir -p elsewhere && cd elsewhere
        {control} --no-such-option 2> errors; echo "status $?"
        export EVENTD_DATA_DIR=here
        echo '"of the shell"' | {control} topic write orders - | cat
    """
    done = processes.run(["bash"], stdin=script, pass_fds=shell_files())
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["status 2", "topic/orders: 1 record written at 1"]
    assert "--no-such-option" in (processes.directory / "elsewhere" / "errors").read_text()
    assert (processes.directory / "elsewhere" / "here" / "eventd.db").exists()


@BOTH
@pytest.mark.usefixtures("how")
def test_a_signal_of_a_shell_ends_its_command(processes: Processes) -> None:
    control = shell_command("eventd.cli.routerctl")
    node = TopicNode(processes, "a")
    node.write("orders", {"data": "bolt"})
    script = f"""
        {control} watch orders@0 > ended & ended=$!
        {control} watch orders@0 > killed & killed=$!
        until grep -qs bolt ended && grep -qs bolt killed; do sleep 0.02; done
        kill -TERM $ended; wait $ended; echo "status $?"
        kill -KILL $killed; wait $killed; echo "status $?"
    """
    done = processes.run(["bash"], stdin=script, env={"EVENTD_SERVER": node.process.url}, pass_fds=shell_files())
    assert done.stdout == "status 0\nstatus 137\n", done.stderr
    wait_for(lambda: b"\0watch\0" not in b"".join(map(command_line, os.listdir("/proc"))), "the command to have ended")


KILLED_CLIENT = """
import socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [theirs.fileno()])
"""


def test_nothing_is_started_for_a_client_that_has_ended_before() -> None:
    requests, other = socket.socketpair()
    with requests, other:
        command = [sys.executable, "-I", "-S", "-c", KILLED_CLIENT, str(other.fileno())]
        subprocess.run(command, pass_fds=[other.fileno()], check=True)
        _, (end, *_), _, _ = socket.recv_fds(requests, 1, 1)
        files = [*(os.open(os.devnull, os.O_RDWR) for _ in range(3)), end]
        assert fork_server._fork_for_shell({}, files, requests) is None
    assert fork_server._of_shells == {}


def test_a_command_that_a_shell_has_killed_has_ended_before_the_next_begins(processes: Processes) -> None:
    """Even if the process that watches it is slow."""
    folder = processes.directory / "killed"
    script = f"""
        {shell_command("eventd.cli.routerd_eventd")} serve --data-dir {folder} 2> log & node=$!
        until grep -qs '"ready"' log; do sleep 0.02; done
        command=$(grep -la '{processes.directory}/[k]illed' /proc/[0-9]*/cmdline 2> vanished | grep -v /proc/$node/)
        watcher=$(cut -d ' ' -f 4 ${{command%cmdline}}stat)
        disown $node; kill -STOP $watcher; kill -9 $node
        (sleep 0.3; kill -CONT $watcher) &
        {shell_command("eventd.cli.routerctl")} --version > version
        grep -la '{processes.directory}/[k]illed' /proc/[0-9]*/cmdline 2> vanished
    """
    done = processes.run(["bash"], stdin=script, env={"EVENTD_API_LISTEN": "127.0.0.1:0"}, pass_fds=shell_files())
    assert (done.stdout, done.stderr) == ("", "")


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
