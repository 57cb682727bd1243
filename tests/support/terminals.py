"""A shell that types the commands of a page, one block after the other, and returns what each one prints."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.fork_server import shell_command, shell_files
from tests.support.source import ROOT
from tests.support.tether import tethered
from tests.support.waiting import wait_for

_SHELL_ONLY = re.compile(r"^\S*bash: line \d+:.*\n", re.MULTILINE)
"""What bash prints about its background jobs; other shells word it differently."""


def make_commands(folder: Path) -> str:
    """Write both commands, and a Python that has the package, into a folder; return the PATH that has them.

    The commands are forks, for a shell that is started with `shell_files`. A killed fork ends a moment after the
    process that the shell sees: only the next of these commands waits for that, any other program does not.
    """
    folder.mkdir()
    python = f'"{sys.executable}"'
    programs = {
        "routerd-eventd": shell_command("eventd.cli.routerd_eventd"),
        "routerctl": shell_command("eventd.cli.routerctl"),
        "python": python,
    }
    for name, program in programs.items():
        file = folder / name
        file.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {program} "$@"\n')
        file.chmod(0o755)
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"


class Terminal:
    """One shell, in a folder. `close` ends it and all its children."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self._shown = folder / f"terminal-{name}.log"
        self._read = 0
        self._blocks = 0
        self._block = ""
        with self._shown.open("wb") as shown:
            self._shell = subprocess.Popen(
                tethered(["bash"], farewell=signal.SIGKILL),
                stdin=subprocess.PIPE,
                stdout=shown,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=folder,
                env={"HOME": str(folder), **env},
                start_new_session=True,
                pass_fds=shell_files(),
            )
        self._send("trap 'echo \"failed: $BASH_COMMAND\"' ERR\n")

    def run(self, block: str) -> str:
        """Type a block, wait until the shell has finished it, and return its output."""
        self.type(block)
        return self.wait()

    def type(self, block: str) -> None:
        """Type a block. Wait for its end before the next."""
        self._block = block
        self._blocks += 1
        self._send(f"{block}\necho '=== {self._blocks}'\n")

    def wait(self, *, seconds: float = 100.0) -> str:
        """Wait until the shell has finished what was typed; return the output."""
        mark = f"=== {self._blocks}\n"
        try:
            wait_for(lambda: self._new().endswith(mark), f"the end of\n{self._block}", seconds=seconds, every=0.05)
        except AssertionError as error:
            raise AssertionError(f"terminal {self.name}: {error}\nit showed:\n{self._new()}") from None
        shown = self._new()
        self._read += len(shown.encode())
        return _SHELL_ONLY.sub("", shown.removesuffix(mark))

    def _send(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def _new(self) -> str:
        return self._shown.read_bytes()[self._read :].decode(errors="replace")

    def close(self) -> None:
        """End the shell and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
