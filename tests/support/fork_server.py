"""Starts the two commands by forking a process that has imported them: the import takes longer than most tests.

`spawn` is `subprocess.Popen` for any command. A command that is exactly `python -m` with a module of `PRELOADED`, or
`python -c` with code that uses `eventd.cli`, becomes a fork: a process with its own pid, session, environment, files
and command line, which runs the code as the interpreter does. A command whose environment has variables that the
interpreter reads at start is started in the ordinary way.

A shell runs a fork by the text that `shell_command` returns: see `fork_client`.

A forked command that itself starts our commands, as the demo and a node of several workers do, has a fork server of its
own. The processes that it starts are its children, as they always are: ending them is the work of the command.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import marshal
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.support.child_processes import adopt_orphans, keep_for_session
from tests.support.tether import tethered

ROOT = Path(__file__).parents[2]
PRELOADED = ("eventd.cli.routerd_eventd", "eventd.cli.routerctl")
_PR_SET_PDEATHSIG = 1
_READ_BY_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE_")
_SET_CHILD_SUBREAPER = 36
_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_LONGEST_COMMAND = 8192
_WORKER = "eventd.cli.daemon.worker"
_OF_ONE_PROCESS = ("eventd.processes.lifeline", _WORKER)
"""Modules that note the pid when they are imported."""


def spawn(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Start `command`, which ends with this process; `how` are the other arguments of `Popen`."""
    if _forks(command) and _interpreter_variables(env) == _interpreter_variables(os.environ):
        return _Forked(command, env=env, **how)
    return subprocess.Popen(tethered(command, farewell=signal.SIGKILL), env=env, **how)


def _forks(command: Sequence[str]) -> bool:
    if sys.platform != "linux" or command[0] != sys.executable or not PRELOADED:
        return False
    return (command[1] == "-m" and command[2] in PRELOADED) or (command[1] == "-c" and "eventd.cli" in command[2])


def shell_command(module: str) -> str:
    """Return what a shell runs as `module`; the shell is started with `shell_files` as its `pass_fds`."""
    if not _forks([sys.executable, "-m", module]):
        return f'"{sys.executable}" -m {module}'
    return f'"{sys.executable}" -I -S "{Path(__file__).with_name("fork_client.py")}" {shell_files()[0]} {module}'


def shell_files() -> list[int]:
    """Return the descriptors that `shell_command` needs."""
    return [_server().fileno()] if sys.platform == "linux" else []


class _Forked(subprocess.Popen[Any]):
    """A command that the fork server starts; it becomes a child of this process, which adopts orphans."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        # the arguments that `subprocess` passes: executable, preexec_fn, close_fds, pass_fds, cwd, env, …
        kept, cwd, env = how[3:6]
        pipes = how[9:15]
        request = {
            "command": [*args],
            "cwd": str(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": how[20],
            "kept": [*kept],
        }
        files = [fd if fd >= 0 else standard for standard, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = _server().fork(request, [*files, *kept])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class _Started(_Forked):
    """A program that a forked command starts: a fork where it is one of our commands or a worker."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        if isinstance(args, list) and (_forks(args) or (_WORKER in "".join(map(str, args)) and "-c" in args)):
            super()._execute_child(args, *how)
        else:
            super(_Forked, self)._execute_child(args, *how)  # type: ignore[misc]


class _Server:
    """The forking process, as the process that started it sees it."""

    def __init__(self, requests: socket.socket) -> None:
        self.starter = os.getpid()
        self._socket = requests
        self._lock = threading.Lock()

    @classmethod
    def start(cls) -> _Server:
        """Start one that imports the commands."""
        adopt_orphans()  # a fork loses its parent at once, and becomes a child of this process
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, "-m", __name__, str(other.fileno()), str(os.getpid()), " " * _LONGEST_COMMAND]
            process = subprocess.Popen(
                command, cwd=ROOT, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        keep_for_session(process.pid)
        process.returncode = 0  # no process waits for it: it ends with this process
        return cls(ours)

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(self, request: Mapping[str, Any], files: list[int]) -> int:
        """Have a command started; return its pid."""
        payload = json.dumps({**request, "umask": _umask()}).encode()
        with self._lock:
            socket.send_fds(self._socket, [payload], files)
            answer = self._socket.recv(_MOST_BYTES)
        assert answer, "the fork server has ended"
        return int(answer)


class _ServerOfCommand(_Server):
    """The forking process of a forked command."""

    def fork(self, request: Mapping[str, Any], files: list[int]) -> int:
        """Have a command started. Its orphans are adopted by the test run, as before."""
        _adopt(True)
        try:
            return super().fork(request, files)
        finally:
            _adopt(False)


_started: list[_Server] = []
_of_shells: dict[int, int] = {}
"""The processes that watch commands of shells, each with a descriptor that is readable once its client has ended."""


def _server() -> _Server:
    if not _started or _started[0].starter != os.getpid():
        _started[:] = [_Server.start()]
    return _started[0]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _interpreter_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_BY_THE_INTERPRETER)}


def _serve(requests: socket.socket, starter: int, *, tether: bool) -> dict[str, Any] | None:
    """Fork for each request. Returns in each fork, with its request, and in the server at the end, with None."""
    request: dict[str, Any] | None
    _of_shells.clear()  # a forked command inherits those of the server
    while True:
        payload, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, _MOST_FILES)
        if not payload:
            return None
        if payload.startswith(b"\0"):
            if (request := _fork_for_shell(marshal.loads(payload[1:]), files, requests)) is not None:
                return request
            continue
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            if os.fork():
                os._exit(0)
            request = json.loads(payload)
            _become_a_child_of(starter, tether=tether)
            if request["session"]:
                os.setsid()
            _show_command(request["command"])
            os.write(tell, str(os.getpid()).encode())  # from now on it can be signalled as any child
            requests.detach()
            _take_files(files, [0, 1, 2, *request["kept"]])
            return request
        os.waitpid(between, 0)
        requests.send(os.read(told, 32))
        for fd in (told, tell, *files):
            os.close(fd)


def _fork_for_shell(request: dict[str, Any], files: list[int], requests: socket.socket) -> dict[str, Any] | None:
    """Fork for a `fork_client`, which is at the other end of the last file. Returns as `_serve` does.

    Before, wait for the commands whose clients were killed: a shell may start one anew, on the same address.
    """
    for each, ended in [*_of_shells.items()]:
        if select.select([ended], [], [], 0)[0]:
            os.waitpid(each, 0)
            os.close(ended)
            del _of_shells[each]
    if (client := _client_of(files[3])) is None:  # there is nothing to start any more
        for fd in files:
            os.close(fd)
        return None
    if each := os.fork():
        for fd in files:
            os.close(fd)
        _of_shells[each] = client
        return None
    requests.detach()
    watcher = os.getpid()
    if command := os.fork():
        for fd in files[:3]:
            os.close(fd)
        _watch_for_shell(command, socket.socket(fileno=files[3]))
    _become_a_child_of(watcher, tether=True)
    _show_command(request["command"])
    _take_files(files[:3], range(3))
    return request


def _client_of(fd: int) -> int | None:
    """Return a descriptor that is readable once the process at the other end has ended, or None if it is reaped."""
    with socket.socket(fileno=os.dup(fd)) as end, contextlib.suppress(ProcessLookupError):
        return os.pidfd_open(struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    return None


def _watch_for_shell(command: int, client: socket.socket) -> NoReturn:
    """Pass on the signals of the client, and the status to it. Kill the command when the client has ended."""
    ended = os.pidfd_open(command)
    while ended not in (ready := select.select([ended, client], [], [])[0]):
        if ready:
            signal.pidfd_send_signal(ended, int(client.recv(32) or signal.SIGKILL))
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with contextlib.suppress(OSError):
        client.send(str(status).encode())
    os._exit(0)


def _become_a_child_of(starter: int, *, tether: bool) -> None:
    """Wait until the process is adopted; with `tether` it dies with the new parent."""
    while os.getppid() != starter:
        time.sleep(0.0002)
    if tether:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != starter:
            os._exit(1)


def _take_files(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the received descriptors these numbers, and close all others."""
    above = max(*files, *numbers) + 1
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in files]
    os.closerange(3, above)
    for fd, number in zip(copies, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _show_command(command: Sequence[str]) -> None:
    """Write the command line to where the kernel reads it, over that of the server, which is long enough."""
    first, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    text = b"".join(word.encode() + b"\0" for word in command)[: end - first - 1]
    ctypes.memmove(first, text.ljust(end - first, b"\0"), end - first)


def _adopt(orphans: bool) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def _run_and_exit(request: Mapping[str, Any]) -> NoReturn:
    """Run the command of a request and exit as the interpreter does, except that it frees no object.

    To free all that was imported before the fork copies its memory, which takes longer than most commands.
    """
    status: object = None
    try:
        _run(request)
    except SystemExit as ended:
        status = ended.code
        if isinstance(status, str):
            print(status, file=sys.stderr)  # noqa: T201
            status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):
        sys.exit(status)  # type: ignore[arg-type]  # the interpreter knows what to report of a stream that is closed
    os._exit(int(status or 0) & 0xFF)  # type: ignore[call-overload]


def _run(request: Mapping[str, Any]) -> None:
    """Run the command of a request."""
    if _starts_commands(request):
        _start_server()
    gc.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run of tests under `nohup` ignores it
    for number in request.get("ignored", ()):
        signal.signal(number, signal.SIG_IGN)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = _standard_stream(fd, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    for module in _OF_ONE_PROCESS:
        sys.modules.pop(module, None)
    words = request["command"]
    if words[1] == "-m":
        sys.argv = words[2:]
        sys.modules.pop(words[2])  # `-m` runs it once, as the main module
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        at = words.index("-c")
        sys.argv = ["-c", *words[at + 2 :]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(words[at + 1], main.__dict__)


def _starts_commands(request: Mapping[str, Any]) -> bool:
    """Whether the command starts nodes, other commands or workers."""
    words = request["command"]
    return (
        "EVENTD_WORKERS" in request["env"]
        or not {"demo", "bench"}.isdisjoint(words)
        or (words[1] == "-c" and "demo" in words[2])
    )


def _start_server() -> None:
    """Keep a copy of this process that forks for it. Before any thread runs."""
    starter = os.getpid()
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        other.close()
        _started[:] = [_ServerOfCommand(ours)]
        subprocess.Popen = _Started  # type: ignore[misc]
        return
    ours.close()
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(silence, standard)  # who reads the output of the command does not wait for this process
    os.close(silence)
    request = _serve(other, starter, tether=False)
    if request is None:
        os._exit(0)
    _run_and_exit(request)


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


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, whose end ends this process
    gc.disable()  # what is imported stays
    for module in PRELOADED:
        importlib.import_module(module)
    importlib.import_module("tests.support.fork_preparation").prepare()
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), tether=True)
    if request is not None:
        _run_and_exit(request)


if __name__ == "__main__":
    _main()
