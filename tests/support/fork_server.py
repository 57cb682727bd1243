"""Starts the two commands by forking a process that has imported them: the import takes longer than most tests.

`spawn` is `subprocess.Popen` for any command. A command that is exactly `python -m` with a module of `PRELOADED`
becomes a fork: a process with its own pid, session, environment and files, which runs the module as `-m` does. A
command whose environment has variables that the interpreter reads at start is started in the ordinary way.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.child_processes import adopt_orphans, stays
from tests.support.tether import tethered

ROOT = Path(__file__).parents[2]
PRELOADED = ("eventd.cli.routerd_eventd", "eventd.cli.routerctl")
_ROOMS = ("api", "cli.daemon", "cli.gateway", "cli.program", "cli.terminal", "net", "node", "observe", "store")
"""Modules that nearly every command imports after it has parsed its arguments."""
_LIBRARIES = ("alembic.command", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite")
_PR_SET_PDEATHSIG = 1
_READ_BY_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE_")
_MOST_BYTES = 1 << 20


def spawn(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Start `command`, which ends with this process; `how` are the other arguments of `Popen`."""
    forks = (
        sys.platform == "linux"
        and tuple(command[:2]) == (sys.executable, "-m")
        and command[2] in PRELOADED
        and _interpreter_variables(env) == _interpreter_variables(os.environ)
    )
    if forks:
        return _Forked(command, env=env, **how)
    return subprocess.Popen(tethered(command, farewell=signal.SIGKILL), env=env, **how)


class _Forked(subprocess.Popen[Any]):
    """A command that the fork server starts; it becomes a child of this process, which adopts orphans."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        # the arguments that `subprocess` passes: executable, preexec_fn, close_fds, pass_fds, cwd, env, …
        cwd, env = how[4:6]
        pipes = how[9:15]
        request = {"argv": args[2:], "cwd": str(cwd or os.getcwd()), "env": dict(env), "session": how[20]}
        files = [fd if fd >= 0 else standard for standard, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = _server().fork(request, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class _Server:
    """The forking process, as the process that started it sees it."""

    def __init__(self) -> None:
        adopt_orphans()  # a fork loses its parent at once, and becomes a child of this process
        self.starter = os.getpid()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, "-m", __name__, str(other.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                command, cwd=ROOT, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        stays(self._process.pid)

    def fork(self, request: Mapping[str, Any], files: list[int]) -> int:
        """Have a command started; return its pid."""
        payload = json.dumps({**request, "umask": _umask()}).encode()
        socket.send_fds(self._socket, [payload], files)
        answer = self._socket.recv(_MOST_BYTES)
        assert answer, "the fork server has ended"
        return int(answer)


_started: list[_Server] = []


def _server() -> _Server:
    if not _started or _started[0].starter != os.getpid():
        _started[:] = [_Server()]
    return _started[0]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _interpreter_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_BY_THE_INTERPRETER)}


def _serve(requests: socket.socket, starter: int) -> dict[str, Any] | None:
    """Fork for each request. Returns in each fork, with its request, and in the server at the end, with None."""
    while True:
        payload, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not payload:
            return None
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            if os.fork():
                os._exit(0)
            request: dict[str, Any] = json.loads(payload)
            _become_a_child_of(starter)
            if request["session"]:
                os.setsid()
            os.write(tell, str(os.getpid()).encode())  # from now on it can be signalled as any child
            requests.close()
            for standard, fd in enumerate(files):
                os.dup2(fd, standard)
            os.closerange(3, max(told, tell, *files) + 1)
            return request
        os.waitpid(between, 0)
        requests.send(os.read(told, 32))
        for fd in (told, tell, *files):
            os.close(fd)


def _become_a_child_of(starter: int) -> None:
    """Wait until the process is adopted, and die with the new parent."""
    while os.getppid() != starter:
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != starter:
        os._exit(1)


def _run(request: Mapping[str, Any]) -> None:
    """Run the module of a request."""
    gc.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = _standard_stream(fd, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    module, *arguments = request["argv"]
    sys.argv = [module, *arguments]
    sys.modules.pop(module)  # `-m` runs it once, as the main module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _standard_stream(fd: int, before: io.TextIOWrapper) -> io.TextIOWrapper:
    """Open a standard stream as the interpreter does at its start: line buffering depends on the file."""
    file = io.FileIO(fd, "w" if fd else "r", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file) if fd else io.BufferedReader(file),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=fd == 2 or file.isatty(),
        write_through=before.write_through,
    )


def _modules() -> Iterator[str]:
    files = (file for room in _ROOMS for file in (ROOT / "eventd" / room.replace(".", "/")).rglob("*.py"))
    return (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, whose end ends this process
    for module in (*PRELOADED, *_LIBRARIES, *_modules()):
        with contextlib.suppress(ImportError):  # an optional package that is not installed
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    gc.disable()
    request = _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    if request is not None:
        _run(request)


if __name__ == "__main__":
    _main()
