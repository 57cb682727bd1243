"""`routerctl bench` as a user runs it: it leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.processes import CONTROL, Processes
from tests.support.waiting import wait_for


def nodes_in(folder: Path) -> list[int]:
    """Return the processes that work in the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            place = os.readlink(entry)
        except OSError:
            continue
        if place.startswith(str(folder)):
            found.append(int(entry.parent.name))
    return found


def test_it_ends_when_it_is_told_to_and_when_it_is_killed(processes: Processes, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "disk", tmp_path / "tmp"
    folder.mkdir(), elsewhere.mkdir()
    command = [*CONTROL, "bench", "ingest", "--duration", "10m", "--folder", str(folder)]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        bench = processes.start(f"bench-{number.name}", command, env={"TMPDIR": str(elsewhere)})
        wait_for(lambda: list(folder.glob("*/bench-a/eventd.db")) or not bench.running, "a node")  # noqa: B023
        assert bench.running, bench.log()
        if number is signal.SIGKILL:
            bench.kill9()
            wait_for(lambda: nodes_in(folder) == [], "the node to end with it")
            return
        bench.send(number)
        assert bench.wait_exit() == code, bench.log()
        assert bench.log() == ""
        assert [*folder.iterdir(), *elsewhere.iterdir()] == []
        assert nodes_in(folder) == []
