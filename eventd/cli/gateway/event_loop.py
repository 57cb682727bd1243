"""Runs an async command on an event loop, until it ends or a signal cancels it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from eventd.cli.program.stopping import EndOnSignal
from eventd.errors import NotFound

Step = Callable[[], Awaitable[None]]


def run_to_end(command: Step, close: Step) -> None:
    """Run a command, and `close` its access to the node in any case.

    A signal cancels the command; the exit status is then 128 + its number unless the command catches that.
    """
    asyncio.run(_run(command, close))


async def _run(command: Step, close: Step) -> None:
    with EndOnSignal() as signals:
        try:
            try:
                await command()
            except NotFound as error:
                if error.code == "topic_not_found" and not error.hint:
                    error.hint = "`routerctl topic list` shows the topics"
                raise
            finally:
                await close()
        except asyncio.CancelledError:  # also after a command, while the node is being closed
            if not signals.number:
                raise
            raise SystemExit(128 + signals.number) from None
