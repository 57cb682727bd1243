"""Plays seeds in several processes, each of which gets the next seed as soon as it has played one."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

import msgspec

from eventd.cli.program.stopping import StopFlag
from eventd.cli.simulate.postgres import ServerAccess
from eventd.cli.simulate.signals import held_back
from eventd.errors import EventdError
from eventd.settings.environment import unseeded_environment

TERMINATE_SECONDS: Final = 10.0
"""How long a process may take to end after a signal."""
AHEAD: Final = 2
"""How many seeds a process is given: it need not wait for the next one."""


@dataclass(slots=True)
class _Player:
    """A process that plays seeds, those that it was given and has not answered, and how its next answer begins."""

    process: subprocess.Popen[bytes]
    seeds: deque[int] = field(default_factory=deque)
    text: bytes = b""

    def give(self, seed: int | None) -> None:
        """Give it a seed; None: there are no more."""
        if seed is None:
            return
        self.seeds.append(seed)
        self.write(b"%d" % seed)

    def write(self, line: bytes) -> None:
        """Write a line to it."""
        questions = cast("IO[bytes]", self.process.stdin)
        with suppress(BrokenPipeError):  # it has ended, and so has what it answers
            questions.write(line + b"\n")
            questions.flush()

    def answers(self) -> list[bytes]:
        """Return the answers that have arrived. Raises `EventdError` if the process has ended."""
        received = os.read(cast("IO[bytes]", self.process.stdout).fileno(), 1 << 16)
        if not received:
            status, seeds = self.process.wait(), " and ".join(map(str, self.seeds))
            raise EventdError(f"the process for seeds {seeds} ended with status {status} and without a result")
        *lines, self.text = (self.text + received).split(b"\n")
        return lines


def play_in_processes(
    seeds: Sequence[int], jobs: int, within: Path | None, server: ServerAccess | None = None
) -> Iterator[bytes]:
    """Yield the result of each seed as JSON, as soon as it was played. Raises `EventdError` if a process fails.

    With `server`, nodes have their databases there. Their files are in one folder below `within`, which is removed
    however they end.
    """
    left = iter(seeds)
    with ExitStack() as stack:
        folder = stack.enter_context(
            TemporaryDirectory(prefix="eventd-simulation-", dir=within, ignore_cleanup_errors=True)
        )
        players: list[_Player] = []
        stack.callback(_end, players)
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(min(jobs, len(seeds))):
            # Otherwise Ctrl-C could leave one that is not ended. A process inherits the mask, so that no SIGINT ends it
            # before it can ignore one.
            with held_back(signal.SIGINT):
                players.append(_start(folder, server))
            selector.register(cast("IO[bytes]", players[-1].process.stdout), selectors.EVENT_READ, players[-1])
        for player in players * AHEAD:
            player.give(next(left, None))
        while any(player.seeds for player in players):
            for key, _ in selector.select():
                player = key.data
                for line in player.answers():
                    player.seeds.popleft()
                    player.give(next(left, None))
                    yield line
                if not player.seeds:  # there are no more for it: it may end before the others
                    selector.unregister(key.fileobj)


def _start(folder: str, server: ServerAccess | None) -> _Player:
    command = [sys.executable, "-m", "eventd.cli.simulate.player", folder, *(["postgres"] if server else [])]
    pipe, environment = subprocess.PIPE, unseeded_environment(folder)
    # In a group of its own: Ctrl-C ends this process, and this process ends it.
    player = _Player(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, process_group=0))
    if server is not None:
        player.write(msgspec.json.encode(server))
    return player


def _end(players: list[_Player]) -> None:
    """End the processes, also in the middle of a run, and at a second Ctrl-C: they use what is removed next."""
    with StopFlag():
        _end_all(players)


def _end_all(players: list[_Player]) -> None:
    for player in players:
        player.process.terminate()  # does nothing to one that has ended
    for player in players:
        try:
            player.process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            player.process.kill()
            player.process.wait()
        for pipe in (player.process.stdin, player.process.stdout):
            with suppress(BrokenPipeError):
                cast("IO[bytes]", pipe).close()
