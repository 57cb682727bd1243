"""The demo as a newcomer runs it: it proves what it claims, fails with a clear message, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.console_visit import ConsoleVisit
from tests.support.fork_server import spawn
from tests.support.ports import free_port
from tests.support.processes import DAEMON, Process, Processes
from tests.support.waiting import wait_for

SECONDS = 300.0
"""Time limit on a busy machine; on an idle one the demo takes ten to twenty seconds."""

WITH_A_TAKEN_PORT = (
    "import sys; from eventd.cli.demo import demo, nodes; from eventd.cli.program import exits; import typer\n"
    "nodes.free_ports = lambda count: {ports}; until = nodes.Stage.until\n"
    "async def hasty(stage, what, *condition):\n"
    "    nodes.PATIENCE_SECONDS = 3.0 if 'to be ready' in what else 30.0\n"
    "    await until(stage, what, *condition)\n"
    "nodes.Stage.until = hasty\n"
    "app = typer.Typer(); app.command()(demo.run); exits.run(app, 'demo')"
)
SMALL = (
    "from eventd.cli import routerd_eventd; from eventd.cli.demo import callbacks, demo;"
    "demo.MANY = callbacks.MANY = 20; demo.OFFLINE = 5; routerd_eventd.main()"
)
"""The daemon, but a node of its demos emits fewer events in a round."""
CONFUSING = {
    "EVENTD_GROUP": "another",
    "EVENTD_DATA_DIR": "/nonexistent",
    "EVENTD_DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:1/nothing",
    "EVENTD_API_KEYS": "secret:read",
    "EVENTD_API_LISTEN": "nonsense",
    "EVENTD_SERVER": "http://127.0.0.1:1",
    "EVENTD_CONFIG": "/nonexistent.yaml",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which the demo, and nothing else, creates files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def running_in(folder: Path) -> list[str]:
    """Return the command lines of all processes that name the folder."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def assert_nothing_left(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    assert running_in(folder) == []


def test_it_proves_on_a_terminal_that_nothing_is_lost_and_its_commands_work(processes: Processes, folder: Path) -> None:
    """With environment settings that would mislead every command."""
    settings = {"TMPDIR": str(folder), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **CONFUSING}
    demo = processes.start("demo", [sys.executable, "-c", SMALL, "demo", "--keep"], env=settings, terminal=True)
    wait_for(lambda: "run until Ctrl-C" in demo.log() or not demo.running, "the demo to play", seconds=SECONDS)
    assert demo.running, demo.log()
    shown = plain(demo)
    assert "✖ down" in shown  # the picture, while site-b is dead
    assert re.search(r"c → b  backing-off  \d+ wait", shown)
    facts = re.findall(r"site-[abc] +([\d,]+) +([\d,]+) +([0-9a-f]{40})…", shown)
    assert len(facts) == 3
    assert len(set(facts)) == 1
    assert facts[0][0] == facts[0][1]
    for command in suggested(shown):
        done = processes.run(shlex.split(command))
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if "event list" in command:
            assert re.search(r"sites +site-a +hello +world", done.stdout)
    demo.send(signal.SIGINT)
    assert demo.wait_exit() == 0, demo.log()
    assert plain(demo).rstrip().endswith("The nodes and their files are deleted.")
    assert_nothing_left(folder)


def plain(demo: Process) -> str:
    """Return what the demo has shown on its terminal, without colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", demo.log())


def suggested(shown: str) -> list[str]:
    """Return the routerctl commands that the demo prints. The other two stop a node, and run one until Ctrl-C."""
    turn = shown.partition("Your turn")[2]
    commands = [line.strip() for line in turn.splitlines() if " federation " in line]
    assert len(commands) == 6
    return commands


def test_it_ends_by_itself_and_says_goodbye(processes: Processes, folder: Path) -> None:
    demo = processes.start("demo", [sys.executable, "-c", SMALL, "demo"], env={"TMPDIR": str(folder)})
    assert demo.wait_exit(seconds=SECONDS) == 0, demo.log()
    assert "Nothing lost, nothing duplicated." in demo.log()
    goodbye = demo.log().partition("Your turn")[2]
    assert "The three nodes and their files are deleted. To keep them" in goodbye
    assert "demo --keep" in goodbye
    assert_nothing_left(folder)


def test_interrupted_it_cleans_up_and_says_so(processes: Processes, folder: Path) -> None:
    demo = processes.start("demo", [*DAEMON, "demo"], env={"TMPDIR": str(folder)})
    wait_for(lambda: "routerctl apply" in demo.log(), "the nodes to run", seconds=SECONDS)
    assert running_in(folder)
    demo.send(signal.SIGTERM)
    assert demo.wait_exit() == 1
    assert demo.log().splitlines()[-1] == "error: the demo was stopped before its end; its nodes and files are deleted"
    assert_nothing_left(folder)


def test_it_fails_with_the_end_of_the_log(processes: Processes, folder: Path) -> None:
    """Two nodes share a port: one of them cannot listen."""
    port = free_port()
    driver = WITH_A_TAKEN_PORT.format(ports=[port, port, free_port()])
    demo = processes.start("demo", [sys.executable, "-c", driver], env={"TMPDIR": str(folder)})
    assert demo.wait_exit(seconds=SECONDS) == 1
    assert re.search(r"error: waited 3 s for site-[ab] to be ready", demo.log())
    assert re.search(rf"cannot listen on 127.0.0.1 port {port}", demo.log())
    assert "Traceback" not in demo.log()
    assert_nothing_left(folder)


def test_the_demo_of_the_console_shows_a_killed_node_until_it_is_started_again(folder: Path, tmp_path: Path) -> None:
    with OnPipes([*DAEMON, "demo", "--console"], {"TMPDIR": str(folder), **CONFUSING}, tmp_path / "log") as demo:
        wait_for(lambda: "run until Ctrl-C" in demo.text(), "the demo to be ready", seconds=SECONDS)
        link = re.search(r"http://127\S+token=\w+", demo.text())
        killed = re.search(r"kill -9 (\d+)", demo.text())
        assert link is not None
        assert killed is not None
        visit = ConsoleVisit(link[0])
        wait_for(lambda: ">yes<" in visit.row("site-b"), "the console to show the node", every=0.2)
        os.kill(int(killed[1]), signal.SIGKILL)
        wait_for(lambda: "silent" in visit.row("site-b"), "the console to show that it was killed", every=0.2)
        assert re.search(r'<a id="m-site-b" class="site [^"]*r-bad"', visit.get("/console/")[1]), (
            "the map shows it, too"
        )
        assert ">yes<" in visit.row("site-a")
        wait_for(lambda: "site-b was killed" in demo.text(), "the demo to say how to start it again")
        demo.press_enter()
        wait_for(lambda: ">yes<" in visit.row("site-b"), "the node to be back", seconds=SECONDS, every=0.2)
        assert visit.get("/at/site-b/console/links")[0] == 200
        demo.press_enter()
        wait_for(lambda: len(re.findall(r"http://127\S+token=\w+", demo.text())) == 2, "a new link", seconds=SECONDS)
        letters = visit.get("/at/site-a/console/dead-letters")[1]
        assert "192.0.2.7/32 is in none of 10.88.0.0/16" in letters
        change = visit.get("/at/site-a/console/do/resources.apply?kind=Plugin&name=routes")[1]
        assert "NETWORKS: 10.88.0.0/16" in change, "it is fixed where the page leads"
        assert "client-10-88-60-2" in visit.get("/at/site-a/console/parts/effective")[1]
        assert visit.get("/at/site-a/console/queues/parcels")[0] == 200
        demo.hang_up()
        assert demo.status() == 0, demo.text()
        assert "\x1b" not in demo.text()
        assert demo.text().rstrip().endswith("are deleted.")
    assert_nothing_left(folder)


class OnPipes:
    """A command whose input the test writes; in a session of its own, killed at the end of the block."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self._log = log
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENTD_")}
        with log.open("wb") as output:
            self._child = spawn(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, **env},
                start_new_session=True,
            )

    def __enter__(self) -> OnPipes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()

    def text(self) -> str:
        """Return what the command has printed. Raises AssertionError if it has failed."""
        text = self._log.read_text(errors="replace")
        assert self._child.poll() in (None, 0), text
        return text

    def press_enter(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()

    def hang_up(self) -> None:
        """Do what the end of a terminal does."""
        self._child.send_signal(signal.SIGHUP)

    def status(self) -> int:
        return self._child.wait(60)


def test_the_demo_of_callbacks_proves_that_nothing_is_lost(processes: Processes, folder: Path) -> None:
    command = [sys.executable, "-c", SMALL, "demo", "--callbacks"]
    demo = processes.start("demo", command, env={"TMPDIR": str(folder), **CONFUSING})
    assert demo.wait_exit(seconds=SECONDS) == 0, demo.log()
    assert re.search(r"\n +60 +60 +60 +\d+ +0\n", demo.log()), demo.log()
    assert "\x1b" not in demo.log()
    assert "backing-off  unreachable" in demo.log()
    assert_nothing_left(folder)
