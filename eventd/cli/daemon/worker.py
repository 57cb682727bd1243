"""A worker, one of several processes of a node: serves its share, and reports its state to the parent."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import socket
import sys
from typing import Any, NoReturn

from eventd.cli.daemon.serving import run_service
from eventd.cli.daemon.workers import BEAT_SECONDS, WorkerConfig
from eventd.cli.program.collector import tune_collector
from eventd.cli.program.exits import ExitCode
from eventd.errors import EventdError
from eventd.node.node import Node
from eventd.observe.log_lines import configure_logging
from eventd.processes.lifeline import end_with
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import Clock, SystemClock


class _Parent:
    """Reports the state of this worker to the parent process, as `ServiceManager` does to a service manager."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: asyncio.Future[None] | None = None

    def ready(self, _status: str) -> None:
        """Report that the worker is ready; after a reload, the parent ignores it."""
        self.send({"ready": True})

    def send(self, message: dict[str, Any]) -> None:
        """Write a message to the parent, as a line of JSON on standard output."""
        os.write(1, json.dumps(message).encode() + b"\n")

    def reloading(self) -> None:
        """Report nothing: the parent requested the reload."""

    def stopping(self) -> None:
        """Report nothing: the parent requested the stop."""

    def keep_alive(self) -> None:
        """Send regular messages from the running loop until `close`; a hung loop sends none."""
        self.send({"alive": True})
        self._timer = self._clock.timer(BEAT_SECONDS)
        self._timer.add_done_callback(lambda timer: None if timer.cancelled() else self.keep_alive())

    def close(self) -> None:
        """Stop the regular messages."""
        if self._timer is not None:
            self._timer.cancel()


def main(lifeline: int) -> NoReturn:
    """Read a `WorkerConfig` from standard input, serve until SIGTERM or an error, and exit.

    When the parent ends, which closes the pipe `lifeline`, the process is killed.
    """
    end_with(lifeline)
    tune_collector()
    terms: WorkerConfig = pickle.load(sys.stdin.buffer)
    settings = terms.settings.model_copy(update={"port_file": None})
    configure_logging(sys.stderr, format=settings.log_format, level=settings.log_level)
    _sign(terms.share.worker)
    clock = SystemClock(terms.origin)
    parent = _Parent(clock)
    sockets = [socket.socket(fileno=number) for number in terms.sockets]
    try:
        run_service(
            lambda: Node(settings, clock=clock, chance=SYSTEM, share=terms.share, sockets=sockets, local=terms.local),
            settings,
            parent,
            clock,
        )
    except EventdError as error:
        parent.send({"error": error.message, "hint": error.hint})
        os._exit(ExitCode.ERROR)
    os._exit(ExitCode.OK)


def _sign(worker: int) -> None:
    """Add the number of the worker to each log line, and drop the lines on start and stop, which the parent logs."""

    def sign(record: logging.LogRecord) -> bool:
        record.worker = worker
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(sign)
    logging.getLogger("eventd.serve").setLevel(logging.WARNING)
