"""Plugins that are programs: one process for each run.

The process reads the request on standard input and writes the answer to standard output.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from eventd.plugins.contract.contract import MAX_STDERR_KEPT, PluginFailed
from eventd.processes.guards import Guards
from eventd.processes.process import OutputPipe, Program
from eventd.resources.reading.problems import shorten
from eventd.runtime.clock import SECOND, Clock
from eventd.text.duration import format_duration

MAX_STDOUT: Final = 4 << 20
MAX_STDERR: Final = 64 << 10
LOOK: Final = "routerctl plugin logs shows what it wrote"
"""The hint when only the plugin's standard error can explain the failure."""
NOT_STARTED: Final = (126, 127)
"""Exit codes by which shells and `env` report that a program cannot be run or found."""
_MISSING: Final = re.compile(
    r"[^\n]{0,300}(?:not found|No such file or directory|Permission denied|Exec format error)\Z"
)
"""Matches a standard error that ends with the message of a shell or `env` that cannot run a program."""
PIPE_SECONDS: Final = 1.0
"""Seconds that a run waits for the pipes of a program that has ended: its descendants may keep them open."""

_FIRST_LINE: Final = 256
"""Maximum bytes of a script's first line that the kernel reads."""
_SIGNALS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_LIMITS: Final = {
    "stdout_too_large": ("output", MAX_STDOUT, "propose less in one run"),
    "stderr_too_large": ("standard error", MAX_STDERR, "write less there: it is for errors"),
}
_SHORTAGES: Final = (
    *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY),
    *(errno.ETIMEDOUT, errno.ECONNRESET),  # its guard was stopped or killed
)
"""Error numbers of a program that could not be started now, but perhaps can be in a minute."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """The unparsed answer of a plugin. For an entry point, `stdout` is the `status` as JSON, and `exit_code` None."""

    exit_code: int | None
    stdout: bytes
    stderr: str


class RunProgram(Protocol):
    """Runs a program once, as `run_executable` does."""

    async def __call__(
        self, path: str, request: bytes, *, longest: int, environment: Mapping[str, str], clock: Clock, guards: Guards
    ) -> RawAnswer: ...


def environment_of(common: Mapping[str, str], own: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return a plugin's environment: the common variables, overridden by its own.

    Variables that the system rejects are left out.
    """
    usable = {key: value for key, value in own if key.strip() and "=" not in key}
    return {key: value for key, value in {**common, **usable}.items() if "\0" not in key + value}


def kept_stderr(raw: bytes | bytearray) -> str:
    """Return the end of a standard error as text, at most `MAX_STDERR_KEPT` characters: failures are reported last."""
    text = bytes(raw).decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= MAX_STDERR_KEPT else "…" + text[-(MAX_STDERR_KEPT - 1) :]


def digest_of(stdout: bytes | bytearray) -> str:
    """Return the SHA-256 of an answer in hex."""
    return hashlib.sha256(stdout).hexdigest()


def check_executable(path: str) -> None:
    """Raise PluginFailed if the file is missing, cannot be examined, or is not a file that this user can execute."""
    try:
        found = os.stat(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        what = "does not exist" if missing else f"cannot be examined: {error.strerror}"
        reason = "missing" if missing else "unreadable"
        hint = "install it there" if missing else "let the node's user access its directory"
        raise _unusable(path, what, reason, f"{hint}, or change spec.executable of the Plugin") from None
    if not stat.S_ISREG(found.st_mode):
        raise _unusable(path, "is not a regular file", "not_a_file", "name a program in spec.executable of the Plugin")
    if not found.st_mode & 0o111 or not os.access(path, os.X_OK):
        hint = "make it executable for the node's user: chmod 755"
        raise _unusable(path, "is not executable", "not_executable", hint)


def _unusable(path: str, what: str, reason: str, hint: str = "") -> PluginFailed:
    return PluginFailed(f"the plugin {shorten(path, 200)} {what}", hint=hint, reason=reason, about_plugin=True)


async def start(path: str, environment: Mapping[str, str], guards: Guards) -> Program:
    """Start a program. Raises PluginFailed."""
    check_executable(path)
    try:
        return await guards.start([path], environment)
    except OSError as error:
        raise _not_started(path, error) from None


def _not_started(path: str, error: OSError) -> PluginFailed:
    match error.errno:
        case errno.ENOEXEC:
            what, hint = "is neither a program nor a script", "a script begins with #! and its interpreter"
        case errno.ENOENT:
            return _no_interpreter(path)
        case _:
            what, hint = f"could not be started: {error.strerror or error}", ""
    failed = _unusable(path, what, "cannot_start", hint)
    failed.transient = error.errno in _SHORTAGES
    return failed


def _no_interpreter(path: str) -> PluginFailed:
    """Return the failure of a script whose interpreter is missing, perhaps because of a Windows line end."""
    try:
        with open(path, "rb") as script:
            first = script.readline(_FIRST_LINE)
    except OSError:
        first = b""
    named = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if not named:
        what = "needs a program to run it, such as a dynamic loader, that does not exist"
        return _unusable(path, what, "cannot_start", "file and ldd show which")
    interpreter, plugin = shorten(named[0], 100), shorten(path, 200)
    hint = "install the interpreter, or correct the first line of the plugin"
    if first.endswith(b"\r\n"):
        hint = "the plugin has Windows line ends: convert it, for example with dos2unix"
    message = f"the interpreter {interpreter} of the plugin {plugin} does not exist"
    return PluginFailed(message, hint=hint, reason="cannot_start", about_plugin=True)


async def run_executable(
    path: str, request: bytes, *, longest: int, environment: Mapping[str, str], clock: Clock, guards: Guards
) -> RawAnswer:
    """Run a program once, for up to `longest` microseconds, and return its answer. Raises PluginFailed.

    However the run ends, also by cancelling, the program is killed with its descendants.
    """
    process = await start(path, environment, guards)
    run = _ProgramRun(process, clock)
    try:
        process.stdin.write(request, last=True)
        verdict = await run.watch(longest)
    finally:
        process.kill_and_reap()
        await process.wait_gone()
    if verdict is not None:
        raise verdict
    return RawAnswer(process.exited.result(), bytes(run.stdout), kept_stderr(run.stderr))


class _ProgramRun:
    """Collects the output of one process, up to the limits, and judges its end."""

    def __init__(self, process: Program, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._too_much: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._pipes = [process.read_stdout(self._take_stdout), process.read_stderr(self._take_stderr)]

    def _take_stdout(self, chunk: bytes) -> None:
        self.stdout += chunk
        if len(self.stdout) > MAX_STDOUT:
            self._stop_reading("stdout_too_large")

    def _take_stderr(self, chunk: bytes) -> None:
        self.stderr += chunk
        if len(self.stderr) > MAX_STDERR:
            self._stop_reading("stderr_too_large")

    def _stop_reading(self, reason: str) -> None:
        for pipe in self._pipes:
            pipe.close()
        if not self._too_much.done():
            self._too_much.set_result(reason)

    async def watch(self, longest: int) -> PluginFailed | None:
        """Wait up to `longest` microseconds for the end of the run. Returns the failure; None if it succeeded."""
        if not await self._ended(longest / SECOND):
            message = f"the plugin was killed: it ran longer than {format_duration(longest)}"
            hint = "make it faster, or raise spec.timeout of the Plugin"
            return self._failed(message, "timeout", hint, transient=True)
        await self._read_the_rest()
        if self._too_much.done():
            return too_much(self._too_much.result(), digest_of(self.stdout), kept_stderr(self.stderr))
        return self._judge(self._process.exited.result())

    async def _ended(self, seconds: float) -> bool:
        """Wait for up to `seconds`, and return whether the program ended or wrote too much in this time."""
        timer = self._clock.timer(seconds)
        try:
            waits: set[asyncio.Future[Any]] = {self._process.exited, self._too_much, timer}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return self._process.exited.done() or self._too_much.done()

    async def _read_the_rest(self) -> None:
        """Read the rest of the pipes, for up to `PIPE_SECONDS`: descendants of the program may keep them open."""
        if all(pipe.ended.done() for pipe in self._pipes):
            return
        timer = self._clock.timer(PIPE_SECONDS)
        try:
            waits: set[asyncio.Future[Any]] = {asyncio.gather(*[pipe.ended for pipe in self._pipes]), timer}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        _drain_all(self._pipes)

    def _judge(self, code: int) -> PluginFailed | None:
        if code == 0:
            return None
        reason = "exit_code" if code > 0 else "killed"
        if code in NOT_STARTED:
            message = f"the plugin {ended_by(code)}: a program that it needs is missing, or cannot be run"
            if named := _MISSING.search(kept_stderr(self.stderr).rstrip()):
                message += f": {shorten(named[0], 200)}"
            return self._failed(message, "missing_program", LOOK, exit_code=code, about_plugin=True)
        return self._failed(f"the plugin {ended_by(code)}", reason, LOOK, exit_code=code, transient=code < 0)

    def _failed(
        self,
        message: str,
        reason: str,
        hint: str,
        *,
        exit_code: int | None = None,
        transient: bool = False,
        about_plugin: bool = False,
    ) -> PluginFailed:
        return PluginFailed(
            message,
            hint=hint,
            reason=reason,
            transient=transient,
            about_plugin=about_plugin,
            exit_code=exit_code,
            stdout_digest=digest_of(self.stdout),
            stderr=kept_stderr(self.stderr),
        )


def ended_by(code: int) -> str:
    """Return how a program ended, such as `exited with status 1`; a negative code is that of a signal."""
    return f"exited with status {code}" if code >= 0 else f"was ended by {_SIGNALS.get(-code, f'signal {-code}')}"


def _drain_all(pipes: list[OutputPipe]) -> None:
    for pipe in pipes:
        pipe.drain(MAX_STDOUT)


def too_much(reason: str, digest: str, stderr: str) -> PluginFailed:
    """Return the failure of a plugin that wrote too much to the output that `reason` names, a key of `_LIMITS`."""
    what, most, hint = _LIMITS[reason]
    message = f"the plugin was killed: it wrote more than {most // 1024} KiB to its {what}"
    return PluginFailed(message, hint=hint, reason=reason, stdout_digest=digest, stderr=stderr)
