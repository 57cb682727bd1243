"""The end of a command: its exit status, and its message."""

from __future__ import annotations

import errno

import pytest
import typer

from eventd.cli.program.exits import ExitCode, exit_code, render, run, system_error
from eventd.errors import CheckFailed, Conflict, EventdError, Invalid, NotFound, SettingsError, Unavailable
from eventd.settings.problems import BadSettings, SettingProblem


class Missing(NotFound):
    """A kind of absence that some surface adds."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EventdError("x"), ExitCode.ERROR),
        (Invalid("x"), ExitCode.ERROR),
        (Conflict("x"), ExitCode.ERROR),
        (Unavailable("x"), ExitCode.ERROR),
        (SettingsError("x"), ExitCode.ERROR),
        (BadSettings([SettingProblem("EVENTD_GROUP", "x")]), ExitCode.ERROR),
        (BadSettings([SettingProblem("--group", "x", usage=True)]), ExitCode.USAGE),
        (NotFound("x"), ExitCode.NOT_FOUND),
        (Missing("x"), ExitCode.NOT_FOUND),
        (CheckFailed("x"), ExitCode.CHECK_FAILED),
    ],
)
def test_each_kind_of_error_has_its_code(error: EventdError, code: ExitCode) -> None:
    assert exit_code(error) is code


def test_the_numbers_stay() -> None:
    assert [(code.name, int(code)) for code in ExitCode] == [
        *(("OK", 0), ("ERROR", 1), ("USAGE", 2)),
        *(("NOT_FOUND", 3), ("CHECK_FAILED", 4)),
    ]


def test_an_error_is_one_line_with_its_hint() -> None:
    assert render(Invalid("it is wrong")) == "error: it is wrong"
    assert render(Invalid("it is wrong", hint="turn it round")) == "error: it is wrong (turn it round)"
    assert render(Invalid("two:\n  a\n  b", hint="fix them")) == "error: two:\n  a\n  b\nhint: fix them"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"), "/x: No such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device (free some space; nothing that"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied (check its owner"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Address already in use (another program listens there"),
        (OSError("without a number"), "without a number"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(error: OSError, told: str) -> None:
    assert str(system_error(error)).startswith(told)


def ended(error: BaseException | None, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit code of a command that raises `error`, and what it says on stderr."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def command() -> None:
        if error is not None:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["command"])
        with pytest.raises(SystemExit) as caught:
            run(app, "command")
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (None, 0, ""),
        (NotFound("no group 'x'", hint="try y"), 3, "error: no group 'x' (try y)\n"),
        (OSError(errno.ENOENT, "No such file or directory", "/x"), 1, "error: /x: No such file or directory\n"),
        (typer.Exit(4), 4, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_command_ends_with_a_code_and_a_line(
    error: BaseException | None, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error, capsys) == (code, told)


def test_a_fault_of_the_program_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError(), capsys)
