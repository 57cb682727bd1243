"""Ends a command: one exit code for each kind of outcome, and errors as readable text without a traceback."""

from __future__ import annotations

import errno
import os
import sys
from enum import IntEnum
from typing import NoReturn

import typer

from eventd.cli.program.interrupt import INTERRUPTED, interrupt_commands
from eventd.cli.terminal.output import printable_lines
from eventd.errors import CheckFailed, EventdError, NotFound, SettingsError


class ExitCode(IntEnum):
    """The exit codes of a command that no signal ended. They are stable: scripts rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CHECK_FAILED = 4


def exit_code(error: EventdError) -> ExitCode:
    """Return the exit code for this error."""
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
    """Format `error: what and where (what to do)`; the hint gets its own line after a message of several lines."""
    if not error.hint:
        return f"error: {error.message}"
    if "\n" in error.message:
        return f"error: {error.message}\nhint: {error.hint}"
    return f"error: {error.message} ({error.hint})"


def report(error: EventdError) -> ExitCode:
    """Print the error to stderr after pending output. Returns the exit code."""
    _flushed()
    print(printable_lines(render(error)), file=sys.stderr)
    return exit_code(error)


def system_error(error: OSError) -> EventdError:
    """Return an error of the system as an `EventdError`, with the file and, as its hint, the remedy, if known."""
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return EventdError(what, hint=_SYSTEM_HINTS.get(error.errno or 0, ""))


_SYSTEM_HINTS = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another port",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
    errno.EACCES: "check its owner and its permissions",
    errno.EPERM: "check its owner and its permissions",
    errno.EEXIST: "it must be a folder",
    errno.ENOTDIR: "something on this path is not a folder",
    errno.ENOSPC: "free some space; nothing that was acknowledged is lost",
    errno.EROFS: "its file system is read-only",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}


def run(app: typer.Typer, name: str, *, needs_output: bool = True) -> NoReturn:
    """Run a command line and exit. Expected errors are printed to stderr, without a traceback.

    `needs_output`: a closed standard output is an error, because a command could create a key and never show it.
    """
    try:
        interrupt_commands()
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
    """Open closed standard streams on the null device. Raises `EventdError` if a needed output was closed."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # Danger: the next file to be opened, such as a database, would take the stream's number
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    if needs_output and "stdout" in closed:
        raise EventdError("standard output is closed", hint="redirect it to /dev/null to discard it")


def _flushed() -> bool:
    """Flush standard output. Returns False if its reader is gone, as with `head`; the rest is then discarded."""
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        # Python flushes again at exit and would complain: redirect the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
