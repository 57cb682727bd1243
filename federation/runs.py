"""Runs: a form of batches for consecutive records with the same path, as most records sent together are.

A run is its head, `position TAB records TAB bytes TAB path LF`, and the events as stored, each ended by a line feed:
so a run is sent and stored without assembling or splitting its events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from federation.errors import Malformed

_NUMBER: Final = rb"([1-9][0-9]{0,14})"
_HEAD: Final = re.compile(rb"%b\t%b\t%b\t([^\t\n]*)\n" % (_NUMBER, _NUMBER, _NUMBER))


class Run(NamedTuple):
    """`records` events at consecutive positions from `position` on. `path` is encoded; a line feed ends each event."""

    position: int
    records: int
    path: str
    events: bytes

    @property
    def last(self) -> int:
        """The position of the last event."""
        return self.position + self.records - 1

    def encode(self) -> bytes:
        """Return the run as it is sent."""
        return f"{self.position}\t{self.records}\t{len(self.events)}\t{self.path}\n".encode() + self.events


def read_runs(body: bytes) -> Iterator[Run]:
    """Yield the runs of a body. Raises Malformed at the first invalid head or length; the events are not examined."""
    start = 0
    while start < len(body):
        head = _HEAD.match(body, start)
        if head is None:
            raise Malformed("a run of the batch does not begin with position, records, bytes and path")
        position, records, size = map(int, head.groups()[:3])
        start = head.end() + size
        # Bytes that are not UTF-8 become surrogates, which no path contains.
        run = Run(position, records, head[4].decode("utf-8", "surrogateescape"), body[head.end() : start])
        if len(run.events) < size or not run.events.endswith(b"\n"):
            words = f"the {size} bytes of the run at position {position} are not all there, or end without a line feed"
            raise Malformed(words)
        yield run


def split_runs(body: bytes) -> Iterator[tuple[int, str, str]]:
    """Yield position, path and event of each record in the runs of a body. Raises Malformed."""
    for run in read_runs(body):
        for position, event in enumerate(run.events.decode().split("\n")[:-1], run.position):
            yield position, run.path, event
