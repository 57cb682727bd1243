"""The processes of a measurement: each on a core of its own, in a temporary folder, and always stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eventd.bench.machine import cpu_of

CORES = {"a": 0, "b": 1}
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.02
LOG_LINES = 5


class ServerFailed(Exception):
    """A server does not start, or has exited; the message contains its output."""


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin processes that are started in the block to one core, if it exists."""
    before = os.sched_getaffinity(0)
    if core in before:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def program(name: str, *places: str) -> str:
    """Return the path of a program; empty if it is not installed.

    It is also looked for beside this Python, where pip installs programs, and where distributions install servers.
    """
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([*places, beside, os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=path) or ""


class Server:
    """One process and its children. It dies with this process, also when that is killed."""

    def __init__(
        self, stack: ExitStack, name: str, folder: Path, command: Sequence[str], *, environ: Mapping[str, str] = {}
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._command = [*(["setpriv", "--pdeathsig", "KILL"] if program("setpriv") else []), *command]
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            **environ,
        }
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        stack.callback(self.kill)

    def start(self, port: int) -> None:
        """Start it, and wait until it listens on a port."""
        with self._log.open("ab") as log, on_core(CORES.get(self.name, -1)):
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environ,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not _listens(port):
            if self._child.poll() is not None:
                raise ServerFailed(f"{self._command[-1]} ended: {self.last_words()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"does not listen after {START_SECONDS:g} s: {self.last_words()}")
            time.sleep(LOOK_SECONDS)

    @property
    def pid(self) -> int:
        """Return its process id, while it runs."""
        assert self._child is not None
        return self._child.pid

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of it and its descendants."""
        return cpu_of_family(self._child.pid) if self._child else 0.0

    def last_words(self) -> str:
        """Return the end of its log, on one line."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return " / ".join(line.strip() for line in lines[-LOG_LINES:]) or "it said nothing"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._child is not None:
            self._child.send_signal(number)

    def stop(self) -> None:
        """Stop it gracefully."""
        if self._child is not None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill it and its descendants."""
        child, self._child = self._child, None
        if child is None:
            return
        family = [*_family(child.pid)]
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        for pid in family[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def cpu_of_family(pid: int) -> float:
    """Return the CPU seconds of a process and of its living descendants."""
    return sum(cpu_of(one) or 0.0 for one in _family(pid))


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                yield from _family(int(child))


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def first_line(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Return the first line that a program prints, for its version."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (told.stdout.strip() or told.stderr.strip()).partition("\n")[0]


def connect(port: int) -> socket.socket:
    """Return a connection without Nagle's algorithm."""
    link = socket.create_connection(("127.0.0.1", port), timeout=60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def split(parts: Sequence[bytes], size: int) -> list[bytes]:
    """Join the parts in batches of this size."""
    return [b"".join(parts[at : at + size]) for at in range(0, len(parts), size)]
