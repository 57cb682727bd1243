"""A target: a function of bytes that fails if a parser breaks its promise, and the limits that hold for each input."""

from __future__ import annotations

import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

MOST_SECONDS: Final = 1.0
"""Processor time that one input may take."""
MOST_BYTES: Final = 64 << 20
"""Memory that one input may take, besides the input itself."""
LONGEST: Final = 4096
"""Maximum bytes of an input that the fuzzer makes; findings in a corpus may be longer."""


class FuzzTarget(NamedTuple):
    """A parser under test. `check` returns for each input that is handled as promised, and raises for any other.

    `seeds` are valid inputs, from which the first run begins; `words` are texts of the format that chance hardly finds.
    """

    name: str
    check: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[str, ...] = ()


class LimitExceeded(AssertionError):
    """An input took too much time or memory."""


@contextmanager
def within_limits(*, traced: bool) -> Iterator[None]:
    """Raise LimitExceeded if the body takes too much processor time or memory.

    With `traced`, memory is what Python allocates, which is exact and slow; without, it is the growth of the process.
    """
    if traced:
        tracemalloc.reset_peak()
    begin, before = time.thread_time(), _memory(traced)
    yield
    seconds, size = time.thread_time() - begin, _memory(traced, peak=True) - before
    if seconds > MOST_SECONDS:
        raise LimitExceeded(f"the input took {seconds:.1f} s, more than {MOST_SECONDS} s")
    if size > MOST_BYTES:
        raise LimitExceeded(f"the input took {size >> 20} MiB, more than {MOST_BYTES >> 20} MiB")


def _memory(traced: bool, *, peak: bool = False) -> int:
    if traced:
        return tracemalloc.get_traced_memory()[peak]
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def replay(target: FuzzTarget, inputs: Iterable[bytes]) -> None:
    """Check inputs one by one, within the limits."""
    traces_already = tracemalloc.is_tracing()
    if not traces_already:
        tracemalloc.start()
    try:
        for data in inputs:
            with within_limits(traced=True):
                target.check(data)
    finally:
        if not traces_already:
            tracemalloc.stop()


def pieces(data: bytes, most: int = 64) -> Iterator[bytes]:
    """Cut bytes into pieces whose sizes the first eight bytes determine, so that the fuzzer chooses the cuts."""
    sizes, rest = data[:8] or b"\0", data[8:]
    at = turn = 0
    while at < len(rest):
        size = 1 + sizes[turn % len(sizes)] % most
        yield rest[at : at + size]
        at, turn = at + size, turn + 1
