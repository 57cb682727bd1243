"""How a command ends: one exit code for each kind of outcome, and errors as one readable line."""

from __future__ import annotations

import errno
import gc
import os
import sys
from enum import IntEnum
from typing import NoReturn

import typer

from eventd.cli.program.interrupt import INTERRUPTED, interrupt_commands
from eventd.cli.terminal.output import printable_lines
from eventd.errors import CheckFailed, EventdError, NotFound, SettingsError


class ExitCode(IntEnum):
    """Stable: scripts rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CHECK_FAILED = 4


def exit_code(error: EventdError) -> ExitCode:
    """The code a command ends with because of this error."""
    match error:
        case SettingsError(usage=True):
            return ExitCode.USAGE
        case NotFound():
            return ExitCode.NOT_FOUND
        case CheckFailed():
            return ExitCode.CHECK_FAILED
        case _:
            return ExitCode.ERROR


def render(error: EventdError) -> str:
    """`error: what and where (what to do)`; the hint gets a line of its own below a message of several."""
    if not error.hint:
        return f"error: {error.message}"
    if "\n" in error.message:
        return f"error: {error.message}\nhint: {error.hint}"
    return f"error: {error.message} ({error.hint})"


def report(error: EventdError) -> ExitCode:
    """Say the error on stderr, after what was shown before it, also where both are one; the code to end with."""
    _flushed()
    print(printable_lines(render(error)), file=sys.stderr)
    return exit_code(error)


def system_error(error: OSError) -> EventdError:
    """What the system refused, in our words: the file or address as far as it is known, and what to do."""
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return EventdError(what, hint=_SYSTEM_HINTS.get(error.errno or 0, ""))


_SYSTEM_HINTS = {
    errno.EADDRINUSE: "another program listens there: end it, or choose another port",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
    errno.EACCES: "check who owns it and what its permissions are",
    errno.EPERM: "check who owns it and what its permissions are",
    errno.EEXIST: "a folder is needed there, and it is something else",
    errno.ENOTDIR: "something on this path is not a folder",
    errno.ENOSPC: "free some space; nothing that was acknowledged is lost",
    errno.EROFS: "it lies on a file system that cannot be written",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}


def tune() -> None:
    """Let the collector of garbage run rarely.

    What is imported lives as long as the process, and events in flight form no cycles: to look through all of it again
    and again cost a tenth of every start, and a fifth of a node's time. A node that grows looks through it: `Garbage`.
    """
    gc.set_threshold(100_000, 50, 100)


def run(app: typer.Typer, name: str, *, needs_output: bool = True) -> NoReturn:
    """Run a command line to its end and exit. Expected errors become one line on stderr, never a traceback.

    `needs_output`: a closed standard output is an error, because a command could make a key and never show it.
    """
    try:
        interrupt_commands()
        tune()
        _open_closed_streams(needs_output)
        app(prog_name=name)
        code: str | int | None = ExitCode.OK
    except SystemExit as end:
        code = end.code
    except EventdError as error:
        code = report(error)
    except OSError as error:
        code = report(system_error(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code if _flushed() else ExitCode.ERROR)


def _open_closed_streams(needs_output: bool) -> None:
    """Give closed standard streams a place. Raises `EventdError` for the output where it is needed."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # Danger: the next file to be opened, a database say, would take the stream's number
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    if needs_output and "stdout" in closed:
        raise EventdError("the standard output is closed", hint="send it to /dev/null if it is not wanted")


def _flushed() -> bool:
    """Whether our output could be written to its end; it cannot when who reads it has gone, as `head` does."""
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain: give what is left a place.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
