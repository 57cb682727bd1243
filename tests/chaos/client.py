"""The client of one node, as a process of its own: see `client_program`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.chaos.load import Ledger
from tests.support.tether import tethered

_PROGRAM = Path(__file__).with_name("client_program.py")
_SECONDS_TO_HALT = 60.0


class ClientProcess:
    """Emits at one node while a round runs, and does what else its `loads` name; its lines go to the ledger.

    `ports` are the files with the ports of the node's processes, `pause` is the mean time between two units in seconds.
    """

    def __init__(
        self, name: str, ports: Sequence[Path], loads: Collection[str], ledger: Ledger, seed: int, pause: float
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._halted = threading.Event()
        told = {"name": name, "ports": [*map(str, ports)], "loads": [*loads], "seed": f"{seed} {name}", "pause": pause}
        command = [sys.executable, "-I", "-S", _PROGRAM, json.dumps(told)]
        self._child = subprocess.Popen(
            tethered(command, farewell=signal.SIGKILL), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read, name=f"answers of {name}", daemon=True)
        self._reader.start()

    def begin(self, number: int) -> None:
        """Start the load of a round."""
        self._halted.clear()
        self._say(f"begin {number}")

    def halt(self) -> None:
        """End the load; returns when no question is open and all answers are in the ledger."""
        self._say("halt")
        assert self._halted.wait(_SECONDS_TO_HALT), f"the client of {self._name} does not halt"

    def catch_up(self, seq: int) -> None:
        """Let the watch follow up to this seq, after the load; returns when its records are in the ledger, or when it
        gave up."""
        self._halted.clear()
        self._say(f"follow {seq}")
        assert self._halted.wait(_SECONDS_TO_HALT), f"the watch of {self._name} does not end"

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait(_SECONDS_TO_HALT)
        self._reader.join(_SECONDS_TO_HALT)
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()

    def _say(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n".encode())
        self._child.stdin.flush()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            told = json.loads(line)
            if told["kind"] == "halted":
                self._halted.set()
            else:
                self._ledger.take(self._name, told)
