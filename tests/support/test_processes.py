from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.tether import tethered
from tests.support.waiting import wait_for

STAND_IN = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print("listening", flush=True)
with open(os.environ["EVENTD_PORT_FILE"], "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
"""
WITH_A_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-c", STAND_IN]


def test_ready_killed_and_started_again(processes: Processes, command: list[str]) -> None:
    node = processes.start("node", command).wait_ready()
    first = node.pid
    assert node.get("/nothing")[0] == 404
    assert node.kill9() == -signal.SIGKILL
    assert not node.running
    assert node.start().wait_ready().pid != first
    assert node.terminate() == -signal.SIGTERM
    assert node.log().count("listening") == 2


def test_a_command_that_fails_at_start_is_told_with_its_log(processes: Processes) -> None:
    node = processes.start("node", [sys.executable, "-c", "raise SystemExit('no such group')"])
    with pytest.raises(AssertionError, match="node exited with status 1 at start:\nno such group"):
        node.wait_ready()
    assert node.wait_exit() == 1


def test_a_command_that_is_never_ready_is_told_by_name(processes: Processes, command: list[str]) -> None:
    node = processes.start("node", command)
    with pytest.raises(AssertionError, match=r"waited 0\.2 s for node to answer /healthz with 200"):
        node.wait_ready("/healthz", seconds=0.2)


def test_a_crash_nobody_looked_at_fails_the_test(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    node = processes.start("node", [sys.executable, "-c", "raise SystemExit(3)"])
    wait_for(lambda: not node.running, "the crash")
    with pytest.raises(AssertionError, match="node exited with status 3 during the test"):
        processes.close()


def test_closing_kills_children_of_children(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    node = processes.start("node", [sys.executable, "-c", WITH_A_CHILD])
    wait_for(lambda: node.log().endswith("\n"), "the child's pid in the log")
    child = int(node.log())
    processes.close()
    wait_for(lambda: not _runs(child), "the child to be gone")


def test_a_hung_command_is_ended_and_told(processes: Processes) -> None:
    with pytest.raises(AssertionError, match=r"had not ended after 0\.5 s; it printed:\nworking"):
        processes.run([sys.executable, "-uc", "import time; print('working'); time.sleep(600)"], seconds=0.5)


def test_output_status_and_input_of_a_command(processes: Processes) -> None:
    done = processes.run([sys.executable, "-c", "print(input() + '!'); raise SystemExit(4)"], stdin="hello\n")
    assert (done.returncode, done.stdout) == (4, "hello!\n")


def test_our_own_settings_do_not_reach_a_node(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTD_API_KEYS", "ours")
    done = processes.run([sys.executable, "-c", "import os; print(sorted(k for k in os.environ if 'EVENTD' in k))"])
    assert done.stdout == "[]\n"


def test_a_stopped_process_hangs_and_goes_on(processes: Processes, command: list[str]) -> None:
    node = processes.start("node", command).wait_ready()
    node.send(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        node.get("/readyz", seconds=0.2)
    node.send(signal.SIGCONT)
    node.wait_ready()


def test_processes_start_in_the_main_thread_only() -> None:
    told: list[BaseException] = []

    def start() -> None:
        try:
            tethered(["true"], farewell=signal.SIGKILL)
        except RuntimeError as refusal:
            told.append(refusal)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "from the main thread" in str(told[0])


def test_a_child_dies_with_a_killed_parent(processes: Processes) -> None:
    script = (
        "import signal, subprocess, sys, time; from tests.support.tether import tethered\n"
        "print(subprocess.Popen(tethered(['sleep', '600'], farewell=signal.SIGKILL)).pid, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    parent = processes.start("parent", [sys.executable, "-c", script], env={"PYTHONPATH": str(root)})
    wait_for(lambda: parent.log().endswith("\n"), "the child's pid in the log")
    child = int(parent.log())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait_exit()
    wait_for(lambda: not _runs(child), "the child to be gone")


def test_ports_are_given_once_and_can_be_listened_on() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
