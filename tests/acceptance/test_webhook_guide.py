"""The guides to receivers of callbacks work as written, with each of the receivers that they show."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.support.fork_server import shell_files
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.source import ROOT
from tests.support.terminals import make_commands

PAGE = (ROOT / "docs" / "how-to" / "receive-a-webhook.md").read_text()
ROTATION = (ROOT / "docs" / "how-to" / "rotate-a-callback-secret.md").read_text()
RECEIVERS = ROOT / "docs" / "examples" / "receivers"


def blocks(heading: str, page: str = PAGE) -> list[str]:
    """The commands below a heading, up to the next one of the same level."""
    level = heading.partition(" ")[0]
    below = re.split(rf"^{re.escape(heading)}$", page, flags=re.MULTILINE)[1]
    return re.findall(r"```sh\n(.*?)```", re.split(rf"^{level} ", below, flags=re.MULTILINE)[0], re.DOTALL)


(SECRET,) = blocks("## 1. Create a secret")
RUN = blocks("## 2. Run a receiver")
SIGNED, AGAIN = blocks("## 3. Test it without a node")
DECLARE = blocks("## 4. Declare the callback")
EMIT, STOP = blocks("## 5. See an event arrive")
(VERIFY,) = blocks("## When nothing arrives")
RECEIVER_STOPS = "kill $receiver\nwait\n"


@pytest.fixture
def follow(processes: Processes, tmp_path: Path) -> Follow:
    return Follow(processes, make_commands(tmp_path / "bin"))


class Follow:
    """Types commands of a page as one script, in a folder with the example receivers."""

    def __init__(self, processes: Processes, path: str) -> None:
        self._processes = processes
        others = [os.path.dirname(program) for name in ("node", "go") if (program := shutil.which(name))]
        self._path = os.pathsep.join([path, *others])

    def __call__(self, *commands: str) -> list[str]:
        """Run the blocks; return the output of each."""
        for file in RECEIVERS.iterdir():
            shutil.copy(file, self._processes.directory)
        parts = ["trap 'kill -9 $node $receiver 2>/dev/null || true' EXIT\n"]
        parts += [f"echo '=== {number}'\n{block}" for number, block in enumerate(commands)]
        ports = {name: str(free_port()) for name in ("9000", "8781")}
        text = re.sub("|".join(ports), lambda found: ports[found[0]], "".join(parts))
        env = {"PATH": self._path, "PORT": ports["9000"]}
        done = self._processes.run(["bash", "-e"], env=env, stdin=text, seconds=100, pass_fds=shell_files())
        assert done.returncode == 0, done.stdout + done.stderr
        return re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]


def test_the_page_shows_all_receivers() -> None:
    shown = {name for name in os.listdir(RECEIVERS) if any(name in block for block in RUN)}
    assert shown == set(os.listdir(RECEIVERS)) - {"drain.py"}


@pytest.mark.parametrize("run", RUN, ids=lambda run: re.findall(r"receiver\S*\.\w+", run)[0])
def test_receiver_is_tested_without_a_node(follow: Follow, run: str) -> None:
    program = run.split()[0]
    if shutil.which(program) is None and program != "python":
        pytest.skip(f"this part of the page needs {program}, which is not installed")
    told = follow(SECRET, run, SIGNED, AGAIN, VERIFY, RECEIVER_STOPS)
    status, printed = told[2].split("\n", 1)
    assert (told[:2], status) == (["", ""], "204")
    assert 'test-1 {"type":"client.seen","data":{"port":"ge-0/0/7"}}\n' in printed
    assert told[3].split() == ["204", "401"]
    assert re.fullmatch(r"test-1 is valid, sent at \d+\n", told[4])


def test_an_event_arrives(follow: Follow) -> None:
    told = follow(SECRET, RUN[0], *DECLARE, EMIT, STOP)
    assert told[3] == "eventgroup/edge created\neventcallback/billing created\n"
    assert re.search(r'^\S+ {"type":"client\.seen",.*"subject":"10\.88\.60\.9/32"', told[4], re.MULTILINE)


def test_receiver_accepts_the_new_secret_before_the_node_signs_with_it(follow: Follow) -> None:
    first, check = re.findall(r"```sh\n(.*?)```", ROTATION, re.DOTALL)
    old = SECRET.replace("billing.key", "billing-2025.key")
    started = first.rstrip("\n") + " > receiver.log 2>&1 &\nreceiver=$!\n"
    told = follow(
        old,
        started,
        SIGNED.replace("billing.key", "billing-2025.key"),
        check.replace("test-1", "test-2"),
        RECEIVER_STOPS,
    )
    assert told[2].startswith("204\n")
    assert told[3] == "204\n"


def test_the_secret_is_rotated_while_events_arrive(follow: Follow) -> None:
    """Each state of the keys on the page, with the receiver that fits it: every event arrives at the first attempt."""
    first, _ = re.findall(r"```sh\n(.*?)```", ROTATION, re.DOTALL)
    declared, started = (block.replace("/etc/routerd-eventd", "$PWD") for block in DECLARE)
    keys = [
        text.replace("/etc/routerd-eventd", "$PWD") for text in re.findall(r"```yaml\n(.*?)```", ROTATION, re.DOTALL)
    ]
    heredocs = [re.sub(r"  signing:\n.*?(?=END\n)", text, declared, flags=re.DOTALL) for text in keys[:3]]
    apply = "routerctl apply -f edge.yaml --data-dir node\n"
    create, both = first.splitlines()
    old_secret = SECRET.replace("billing.key", "billing-2025.key")
    old, new = "python receiver_aiohttp.py billing-2025.key", "python receiver_aiohttp.py billing-2026.key"
    told = follow(
        f"{old_secret}{create}\n",
        _restarted(old),
        heredocs[0] + started + _emitted(1),
        _restarted(both) + _emitted(2),
        heredocs[1] + apply + _emitted(3),
        _restarted(new) + _emitted(4),
        heredocs[2] + apply + _emitted(5),
        "routerctl callback attempts billing --data-dir node -o wide\n" + STOP,
    )
    rows = [line for line in told[7].splitlines() if " 204 " in line]
    assert len(rows) == 5
    assert all(re.search(r" 1 +1 +204 ", row) for row in rows), "each event at its first attempt"
    assert [row.count("b-2026") + row.count("b-2025") for row in rows] == [1, 2, 2, 1, 1], "the newest first"


def _restarted(receiver: str) -> str:
    """The commands that run a receiver in the place of the one before."""
    wait = "until curl -s http://127.0.0.1:9000/ > answer.txt; do sleep 0.2; done\n"
    stop = 'if [ -n "$receiver" ]; then kill $receiver; wait $receiver || true; fi\n'
    return f"{stop}{receiver} >> receiver.log 2>&1 &\nreceiver=$!\n{wait}"


def _emitted(number: int) -> str:
    """The commands that emit an event and wait until the receiver has it."""
    emit = EMIT.replace("10.88.60.9/32", f"10.88.60.{number}/32").splitlines()[0]
    return f"{emit}\nuntil grep -qs 10.88.60.{number}/32 receiver.log; do sleep 0.2; done\n"
