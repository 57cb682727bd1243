"""Lines to send to a peer: one body, split only when a single record must be examined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

from eventd.egress.loop.sink import OutboundBatch
from federation.lines import encode_lines, split_line
from federation.peers import BATCH_TYPE, RUNS_TYPE
from federation.runs import split_runs


class OutboundLine(NamedTuple):
    """One record in its form on the wire: its position in this node's log, its encoded path, and the event's canonical
    form.
    """

    position: int
    path: str
    body: str

    @property
    def event_id(self) -> str:
        """Return the event's id, read from its body."""
        return str(json.loads(self.body)["id"])


@dataclass(frozen=True)
class OutboundLines(Sequence[OutboundLine]):
    """The lines of a batch, as the body that v2 sends: `events` events, in the content type `form`.

    `oldest` is the earliest time of recording among them, in microseconds; a slice keeps that of the whole.
    """

    body: bytes
    events: int
    oldest: int
    form: str = BATCH_TYPE

    def __len__(self) -> int:
        return self.events

    @cached_property
    def _apart(self) -> list[OutboundLine]:
        if self.form == RUNS_TYPE:
            return [OutboundLine(*record) for record in split_runs(self.body)]
        rows = map(split_line, self.body.decode().split("\n")[:-1])
        return [OutboundLine(int(position), path, body) for position, path, body in rows]

    @overload
    def __getitem__(self, index: int) -> OutboundLine: ...

    @overload
    def __getitem__(self, index: slice) -> OutboundLines: ...

    def __getitem__(self, index: int | slice) -> OutboundLine | OutboundLines:
        if isinstance(index, int):
            return self._apart[index]
        lines = self._apart[index]
        return OutboundLines(encode_lines(lines).encode(), len(lines), self.oldest)


@dataclass(frozen=True, slots=True)
class PeerBatch(OutboundBatch):
    """An outbound batch whose records are lines for a peer. `leaves`: their leaves, as the header `Eventd-Leaves`.

    `evicted`: the number of events in the loss before the range, or more.
    """

    records: OutboundLines
    leaves: str = ""
    evicted: int = 0

    def picked(self, upto: int) -> list[int]:
        """Return, in order, the positions up to `upto` that a repair sends or leaves out: its ledger row lists them."""
        positions = [*(line.position for line in self.records), *(at for at, _ in self.exceptions)]
        return sorted(position for position in positions if position <= upto)
