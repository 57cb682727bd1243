"""Child processes under test: started with a port file and a log file, awaited by what they do, and always killed.

Made for acceptance tests, which use only what a user has: the two commands and HTTP. Blocking code: a test that starts
processes has no event loop.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from eventd.runtime.clock import SystemClock
from tests.support.fork_server import spawn
from tests.support.fresh import make_current
from tests.support.waiting import wait_for

DAEMON = (sys.executable, "-m", "eventd.cli.routerd_eventd")
CONTROL = (sys.executable, "-m", "eventd.cli.routerctl")

_ENDED_BY_OURSELVES_SECONDS = 10.0
_NOT_INHERITED = ("EVENTD_", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "PYTEST_")


class Process:
    """One command that can be started, killed and started again, on the same files."""

    def __init__(
        self, name: str, command: Sequence[str], *, directory: Path, env: Mapping[str, str], terminal: bool = False
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = directory / f"{name}.log"
        self.port_file = directory / f"{name}.port"
        self.env = {**_clean_environment(), "EVENTD_PORT_FILE": str(self.port_file), **env}
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self._end_expected = False
        self._on_terminal = terminal
        self._copying: threading.Thread | None = None

    def start(self) -> Process:
        """Start the command; its output is appended to `log_path`. Does not wait."""
        assert not self.running, f"{self.name} runs already"
        self.port_file.unlink(missing_ok=True)  # otherwise the port of the last start would be read
        self._end_expected = False
        with self._open_terminal() if self._on_terminal else self.log_path.open("ab") as log:
            self._child = spawn(
                self.command,
                stdin=log if self._on_terminal else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self.env,
                start_new_session=True,  # so that its own children can be killed with it
            )
        return self

    def wait_ready(self, path: str = "/readyz", *, seconds: float = 30.0) -> Process:
        """Wait until `path` is answered with 200. Raises AssertionError with the log if the process exits first."""
        wait_for(lambda: self._answers(path), f"{self.name} to answer {path} with 200", seconds=seconds)
        return self

    def kill9(self) -> int:
        """Send SIGKILL, as a crash or the kernel would. Returns the exit status, -9."""
        return self._end(signal.SIGKILL, seconds=_ENDED_BY_OURSELVES_SECONDS)

    def terminate(self, *, seconds: float = 20.0) -> int:
        """Send SIGTERM and return the exit status. Raises AssertionError if the process has not exited after
        `seconds`."""
        return self._end(signal.SIGTERM, seconds=seconds)

    def wait_exit(self, *, seconds: float = 30.0) -> int:
        """Wait until the command exits by itself; return the exit status."""
        child = self._started()
        self._end_expected = True
        wait_for(lambda: child.poll() is not None, f"{self.name} to end", seconds=seconds)
        self._join_terminal()
        return child.returncode

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone: SIGHUP to reload, SIGSTOP and SIGCONT for a peer that hangs."""
        self._started().send_signal(number)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def port(self) -> int:
        """Return the API port of this start. Raises AssertionError until it is known."""
        assert self.port_file.exists(), f"{self.name} has not written its port file yet:\n{self.log_tail()}"
        return int(self.port_file.read_text().rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, seconds: float = 10.0) -> tuple[int, bytes]:
        """GET `path`: (status, body). Raises OSError while the process does not listen."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)) as connection:
            connection.request("GET", path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def log(self) -> str:
        """Return the output of all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def died(self) -> str | None:
        """Return a message if the command failed unnoticed, otherwise None."""
        if self._child is None or self.running or self._end_expected or self._child.returncode == 0:
            return None
        return f"{self.name} exited with status {self._child.returncode} during the test:\n{self.log_tail()}"

    def destroy(self) -> None:
        """Kill the command and its children. Idempotent."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)  # also if the leader has exited and its children have not
        self._child.wait(_ENDED_BY_OURSELVES_SECONDS)
        self._join_terminal()

    def _open_terminal(self) -> BinaryIO:
        """Return the side of a new terminal that the command uses; what the command shows there is logged."""
        ours, theirs = os.openpty()
        self._copying = threading.Thread(target=self._log_terminal, args=(ours,), name=f"terminal of {self.name}")
        self._copying.start()
        return open(theirs, "r+b", buffering=0)

    def _log_terminal(self, terminal: int) -> None:
        with (
            self.log_path.open("ab", buffering=0) as log,
            contextlib.suppress(OSError),
        ):  # EIO: the other side is closed
            while shown := os.read(terminal, 1 << 16):
                log.write(shown)
        os.close(terminal)

    def _join_terminal(self) -> None:
        if self._copying is not None:
            self._copying.join(_ENDED_BY_OURSELVES_SECONDS)

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, f"{self.name} has not been started"
        return self._child

    def _end(self, number: signal.Signals, *, seconds: float) -> int:
        child = self._started()
        assert self.running, f"{self.name} had already exited with status {child.returncode}:\n{self.log_tail()}"
        self._end_expected = True
        child.send_signal(number)
        wait_for(lambda: child.poll() is not None, f"{self.name} to end on {number.name}", seconds=seconds)
        return child.returncode

    def _answers(self, path: str) -> bool:
        assert self.running, f"{self.name} exited with status {self._started().returncode} at start:\n{self.log_tail()}"
        try:
            return self.get(path, seconds=2.0)[0] == 200
        except (AssertionError, ValueError, OSError, http.client.HTTPException):
            return False  # no port yet, or no listener yet


class Processes:
    """All child processes of one test. `close` kills all of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._all: list[Process] = []

    def start(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, terminal: bool = False
    ) -> Process:
        """Start any command under `name`, on a terminal if asked to; does not wait."""
        process = Process(name, command, directory=self.directory, env=env or {}, terminal=terminal)
        self._all.append(process)
        return process.start()

    def serve(
        self,
        name: str,
        *arguments: str,
        database_url: str | None = None,
        env: Mapping[str, str] | None = None,
        ready: bool = True,
        empty: bool = False,
        program: Sequence[str] = DAEMON,
    ) -> Process:
        """Start `routerd-eventd serve` with data in a folder of its own, on a free port; return when it is ready.

        Its SQLite file is there already, unless `empty`: to apply all migrations would take half of the start.
        """
        if ready and not empty and database_url is None and not arguments:
            self._make_database(self.directory / name)
        settings = {**self.node_environment(name, database_url=database_url), "EVENTD_API_LISTEN": "127.0.0.1:0"}
        process = self.start(name, [*program, "serve", *arguments], env={**settings, **(env or {})})
        return process.wait_ready() if ready else process

    def _make_database(self, folder: Path) -> None:
        if not (file := folder / "eventd.db").exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            make_current(f"sqlite:///{file}", now=SystemClock().now())

    def control(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        seconds: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run `routerctl` with `arguments`; the exit status is not checked."""
        return self.run([*CONTROL, *arguments], env=env, stdin=stdin, seconds=seconds)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        seconds: float = 60.0,
        pass_fds: Collection[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a command until it exits. Raises AssertionError with its output after `seconds`."""
        child = spawn(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env={**_clean_environment(), **(env or {})},
            start_new_session=True,
            pass_fds=pass_fds,
        )
        with child:
            try:
                out, err = child.communicate(stdin or "", timeout=seconds)
            except BaseException as interruption:  # a time-out of pytest ends here too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
                if not isinstance(interruption, subprocess.TimeoutExpired):
                    raise
                told = f"{' '.join(command)} had not ended after {seconds:g} s; it printed:\n{out}{err}"
                raise AssertionError(told) from None
        return subprocess.CompletedProcess(list(command), child.returncode, out, err)

    def node_environment(self, name: str, *, database_url: str | None = None) -> dict[str, str]:
        """Return the settings with which a command works on the data of the node `name`, running or not."""
        settings = {"EVENTD_DATA_DIR": str(self.directory / name)}
        return {**settings, "EVENTD_DATABASE_URL": database_url} if database_url else settings

    def close(self) -> None:
        """Kill all processes, print the logs (pytest shows them for a failed test), report failures that went
        unnoticed."""
        dead = [told for process in self._all if (told := process.died())]
        for process in self._all:
            process.destroy()
            sys.stdout.write(f"--- log of {process.name}\n{process.log_tail()}\n")
        self._all.clear()
        assert not dead, "\n".join(dead)


def _clean_environment() -> dict[str, str]:
    """Return this environment without variables that would configure the node."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
