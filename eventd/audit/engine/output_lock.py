"""The lock of an output folder. Two audits at once would remove each other's state and overwrite final hours."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from eventd.audit.report.file_names import LOCK
from eventd.audit.spark.locations import Location
from eventd.errors import Conflict, LakeUnavailable
from eventd.lake.storage import Storage


@contextlib.contextmanager
def hold_output(out: Storage) -> Iterator[None]:
    """Create the output folder if it is missing, and lock it for this process until the block ends.

    Raises Conflict, which names the process that holds the lock if that is known, and LakeUnavailable.
    The kernel releases the lock when the process exits. A store behind an address has no lock: operators must not start
    two audits there.
    """
    place = out.locate(LOCK)
    if "://" in place:
        yield
        return
    with _writing(out):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _writing(out):
            _lock(fd, out)
        yield
        with _writing(out):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _lock(fd: int, out: Storage) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise Conflict(f"{who} writes an audit to {out.url}", hint="let it end, or choose another --out") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)


@contextlib.contextmanager
def _writing(out: Storage) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # such as a full disk
        reason = error.strerror or error
        raise LakeUnavailable(
            f"cannot write in the output folder at {out.url}: {reason}", hint="choose another --out"
        ) from None


def hold_location(out: Location) -> contextlib.AbstractContextManager[None]:
    """Lock an output like `hold_output`; one that only Spark reaches has no lock."""
    return contextlib.nullcontext() if out.by_spark else hold_output(out.open())
