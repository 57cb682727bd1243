"""Runs an async command without an event loop as long as possible: to load one takes longer than the command.

A command that only asks a node never needs a loop, because the access to the node blocks. The access to a database
does need one, so it first awaits `enter_loop`, and the command continues on a loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any

Step = Callable[[], Coroutine[Any, Any, None]]


@coroutine
def enter_loop() -> Generator[None, None, None]:
    """Continue on an event loop. On a loop already, this lets other tasks run once."""
    yield


def run_with_late_loop(command: Step, close: Callable[[], Awaitable[None]]) -> None:
    """Run a command, and `close` its access to the node in any case; without a loop until it awaits `enter_loop`."""
    running = command()
    try:
        running.send(None)
    except StopIteration:
        _complete(close)
    except BaseException:
        _complete(close)
        raise
    else:
        from eventd.cli.gateway.event_loop import run_to_end

        run_to_end(lambda: _resume(running), close)


@coroutine
def _resume(running: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    yield from running


def _complete(close: Callable[[], Awaitable[None]]) -> None:
    """Close an access that needs no loop."""
    for _ in close().__await__():
        raise RuntimeError("the access to a node waits for an event loop that does not run")
