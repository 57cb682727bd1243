"""Opens a file in the operator's editor."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

from eventd.errors import EventdError, Invalid
from eventd.settings.environment import editor_command

_HINT = "set VISUAL or EDITOR to the command of an editor, such as `vi` or `code --wait`"


def find_editor() -> list[str]:
    """Return the command of the editor in words. Raises `EventdError` without one, or without a terminal."""
    if not is_terminal():
        raise EventdError(
            "there is no terminal to edit on", hint="change a file instead: `routerctl get -o yaml`, then `apply -f`"
        )
    try:
        words = shlex.split(editor_command())
    except ValueError as error:
        raise Invalid(f"the command of the editor cannot be read: {error}", hint=_HINT) from None
    if not words:
        raise Invalid("no editor is set", hint=_HINT)
    return words


def is_terminal() -> bool:
    """Return whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run_editor(words: list[str], file: Path) -> None:
    """Open a file, and wait until the editor ends. Raises `EventdError` if it cannot be started, or fails."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's, which gets the default handler
    try:
        done = subprocess.run([*words, str(file)], check=False)
    except OSError as error:
        raise Invalid(f"cannot start the editor {words[0]}: {error.strerror}", hint=_HINT) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if done.returncode != 0:
        raise EventdError(f"the editor {words[0]} exited with status {done.returncode}; nothing was changed")
