"""The shipping process: it takes its terms, then does one thing after the other that the node asks for."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from eventd.egress.lake.protocol import LENGTH, REQUESTS, Answer, Failure, ShipRequest, Terms, frame
from eventd.errors import EventdError
from eventd.lake.extra import parquet
from eventd.processes.hidden import hide_process
from eventd.processes.lifeline import end_with

_LAST: Final = 19
"""The number of who gives way to everybody."""


def main(lifeline: int) -> NoReturn:
    """Work until the pipe ends. `lifeline` is a pipe whose other end the node holds."""
    end_with(lifeline)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # whatever prints must not get among the answers
    frames = _read(requests)
    answer = _begin(next(frames))
    for raw in frames:
        left = memoryview(frame(answer(raw)))
        while left:
            left = left[os.write(answers, left) :]
    os._exit(0)


def _begin(raw: bytes) -> Callable[[bytes], Answer]:
    """What answers to frames: a shipper, or why there can be none."""
    terms = msgspec.json.decode(raw, type=Terms)
    _give_way(terms.nice)  # already while it loads what it needs, which takes a second of work
    hide_process()  # it has the database's password; not before, as it may not write to its own /proc afterwards
    from eventd.egress.lake.shipper import Shipper
    from eventd.store.engine.database import Database

    try:
        parquet()  # or the first segment would be what finds it missing
        shipper = Shipper(terms, Database(terms.database, claim=terms.claim))
    except EventdError as error:
        why = Failure(kind="blocked", reason=error.code, message=str(error))
        return lambda _: why
    return lambda raw: _answer(shipper.step, shipper.tidy, raw)


def _answer(step: Callable[[int], Answer], tidy: Callable[[int], Answer], raw: bytes) -> Answer:
    request = REQUESTS.decode(raw)
    try:
        return step(request.now) if isinstance(request, ShipRequest) else tidy(request.now)
    except Exception as error:  # a fault of ours: the node is told, and gets another process
        traceback.print_exc()
        told = f"{type(error).__name__} in the shipping process; see the node's log"
        return Failure(kind="fault", reason="internal", message=told)


def _read(fd: int) -> Iterator[bytes]:
    """Every frame; ends when the node closes its end."""
    with open(fd, "rb") as stream:
        while len(head := stream.read(LENGTH)) == LENGTH:
            yield stream.read(int.from_bytes(head))


def _give_way(nice: int) -> None:
    """Let everything else on this machine go first.

    Where sessions get shares of the processors, a process alone in its session would get as much as the node: there the
    session has to give way, too. And 19 is to mean what nobody else wants: as one of many, a process of that number
    still takes a processor for its turn, and those that wait for each other's answers lose it each time.
    """
    with suppress(OSError):
        os.nice(nice)
    with suppress(OSError, AttributeError):  # what only Linux has
        if nice == _LAST:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")
