"""Faults of the disk of a node on SQLite."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.kinds import PRELOADED
from tests.chaos.member import Member
from tests.chaos.mounts import make_read_only, mount
from tests.chaos.plan import Fault
from tests.chaos.preload import Preload
from tests.chaos.steps import Steps, until

if TYPE_CHECKING:
    from tests.chaos.faults import Faults

DiskFault = Callable[[Member, Fault], Steps]
_SLOW_MILLISECONDS = 250


def fault(kind: str) -> Callable[[Faults, Member, Fault], Steps]:
    """Return the fault as the others are called. The node may log errors from then on. A fault of the preloaded library
    that no call has met is idle."""

    def steps(faults: Faults, member: Member, drawn: Fault) -> Steps:
        member.troubled = True
        before = None if member.preload is None else member.preload.hits
        yield from KINDS[kind](member, drawn)
        if kind in PRELOADED and member.preload is not None and member.preload.hits == before:
            faults.note_idle(drawn)

    return steps


def _fill_disk(member: Member, fault: Fault) -> Steps:
    ballast = member.running.data / "ballast"
    with ballast.open("wb") as file:
        size, step = 0, 1 << 24
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, step)
                size += step
            except OSError:
                step //= 2
    yield fault.seconds
    ballast.unlink()


def _limit_files(member: Member, fault: Fault) -> Steps:
    """Let each write fail, also to logs."""
    soft, hard = resource.prlimit(member.running.process.pid, resource.RLIMIT_FSIZE)
    for limit in (0, soft):
        for pid in member.pids():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
        yield fault.seconds if limit != soft else 0.0


def _start_read_only(member: Member, fault: Fault) -> Steps:
    member.kill()
    # The workers of a node that was killed end a moment later.
    yield from until(lambda: make_read_only(member.running.data), f"{member.name}'s processes to close their files")
    try:
        process = member.running.process.start()
        yield fault.seconds
        if process.running:
            assert not member.ready(), f"{member.name} is ready on a read-only disk"
            member.kill()
        else:
            assert process.wait_exit() != 0
    finally:
        mount("-o", "remount,rw", str(member.running.data))


def _preloaded(begin: Callable[[Preload], None], end: Callable[[Preload], None]) -> DiskFault:
    def steps(member: Member, fault: Fault) -> Steps:
        assert member.preload is not None
        begin(member.preload)
        yield fault.seconds
        end(member.preload)

    return steps


def _failing_writes(number: int) -> DiskFault:
    return _preloaded(lambda preload: preload.fail_writes(number), lambda preload: preload.fail_writes(0))


def _failing_flushes(number: int) -> DiskFault:
    return _preloaded(lambda preload: preload.fail_flushes(number), lambda preload: preload.fail_flushes(0))


def _delete(member: Member, fault: Fault) -> Steps:
    """Delete the file of the database; a second name of it brings it back."""
    file, kept = member.running.file, member.running.file.with_suffix(".kept")
    os.link(file, kept)
    file.unlink()
    yield fault.seconds
    kept.replace(file)


def _replace(member: Member, fault: Fault) -> Steps:
    """Put another file where the database is, as a wrong restore does."""
    file, kept = member.running.file, member.running.file.with_suffix(".kept")
    other = file.with_suffix(".other")
    os.link(file, kept)
    shutil.copyfile(file, other)
    other.replace(file)
    yield fault.seconds
    kept.replace(file)


KINDS: dict[str, DiskFault] = {
    "disk full": _fill_disk,
    "writes fail": _limit_files,
    "read-only at start": _start_read_only,
    "disk turns read-only": _failing_writes(errno.EROFS),
    "writes end with EIO": _failing_writes(errno.EIO),
    "flush ends with EIO": _failing_flushes(errno.EIO),
    "flush ends with ENOSPC": _failing_flushes(errno.ENOSPC),
    "slow flush": _preloaded(
        lambda preload: preload.delay_flushes(_SLOW_MILLISECONDS), lambda preload: preload.delay_flushes(0)
    ),
    "database deleted": _delete,
    "database replaced": _replace,
}
"""What happens to the disk, by the kind of fault."""
