"""The shipping process: reads its terms, then performs the node's requests one by one."""

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
"""The lowest priority."""


def main(lifeline: int) -> NoReturn:
    """Answer requests from standard input until it ends, then exit.

    `lifeline` is a pipe whose other end the node holds: when that is closed, this process is killed.
    """
    end_with(lifeline)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # printed output must not mix with the answers
    frames = _read(requests)
    answer = _begin(next(frames))
    for raw in frames:
        left = memoryview(frame(answer(raw)))
        while left:
            left = left[os.write(answers, left) :]
    os._exit(0)


def _begin(raw: bytes) -> Callable[[bytes], Answer]:
    """Lower the priority, and return the function that answers frames, from the terms in the first frame.

    Without a usable database or library, that function answers every frame with the reason, as a `Failure`.
    """
    terms = msgspec.json.decode(raw, type=Terms)
    _give_way(terms.nice)  # before loading libraries, which takes a second of processor time
    hide_process()  # it has the database's password; not earlier, because it cannot write to its own /proc afterwards
    from eventd.egress.lake.shipper import Shipper
    from eventd.store.engine.database import Database

    try:
        parquet()  # otherwise only the first segment would reveal a missing package
        shipper = Shipper(terms, Database(terms.database, claim=terms.claim))
    except EventdError as error:
        why = Failure(kind="blocked", reason=error.code, message=str(error))
        return lambda _: why
    return lambda raw: _answer(shipper.answer, shipper.tidy, raw)


def _answer(step: Callable[[ShipRequest], Answer], tidy: Callable[[int], Answer], raw: bytes) -> Answer:
    request = REQUESTS.decode(raw)
    try:
        return step(request) if isinstance(request, ShipRequest) else tidy(request.now)
    except Exception as error:  # a defect: the node logs it and starts another process
        traceback.print_exc()
        message = f"{type(error).__name__} in the shipping process; see the node's log"
        return Failure(kind="fault", reason="internal", message=message)


def _read(fd: int) -> Iterator[bytes]:
    """Yield every frame without its length, until the node closes its end of the pipe."""
    with open(fd, "rb") as stream:
        while len(head := stream.read(LENGTH)) == LENGTH:
            yield stream.read(int.from_bytes(head))


def _give_way(nice: int) -> None:
    """Lower the priority of this process.

    On a system that divides the processors evenly between sessions, a process in its own session would get as much as
    the node; there, the session's priority is lowered, too. At 19, the scheduler's class for idle work is used,
    because a process of the normal class still delays others at that priority.
    """
    with suppress(OSError):
        os.nice(nice)
    with suppress(OSError, AttributeError):  # Linux only
        if nice == _LAST:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")
