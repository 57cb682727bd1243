"""The ledger of events: the log of each node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from eventd.audit.generate import arrow_columns
from eventd.audit.generate.catalogue import Catalogue, EventRows
from eventd.audit.generate.flows import Flow
from eventd.audit.generate.history import SUBJECTS
from eventd.audit.generate.log_positions import OWN, by_flow, log_of, sizes_of
from eventd.audit.generate.pseudo_random import Bytes, Smalls, digests
from eventd.audit.generate.segments import Block, Cut, SegmentRows, blocks, cut, epochs_of, numbers_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger
from federation.loops import encode_path


class EventsLedger:
    """The events of one node."""

    def __init__(self, world: World, node: int, catalogue: Catalogue) -> None:
        self._world, self._node, self._catalogue = world, node, catalogue
        history = world.histories[node]
        self._journal = journal = log_of(world, node)
        self._sizes = sizes_of(world, journal, history)
        self._position = np.cumsum(self._sizes) - self._sizes + 1
        self._starts, self._seq, self._group, self._source, self._path = (
            np.zeros(len(journal), np.int64) for _ in range(5)
        )
        self._paths = [""]
        for uid, places in by_flow(journal):
            self._read(None if uid == OWN else world.flows[uid], places)

    def _read(self, flow: Flow | None, places: Any) -> None:
        batches = self._journal.batch[places]
        if flow is None:
            history = self._world.histories[self._node]
            self._starts[places] = history.first[batches]
            self._seq[places], self._group[places] = history.seq[batches], history.group[batches]
            self._source[places] = self._node
            return
        self._starts[places], self._seq[places] = flow.held_at[batches], flow.seq[batches]
        self._group[places], self._source[places] = flow.group, flow.source
        self._path[places] = self._code(encode_path(tuple(self._way(flow))))

    def _way(self, flow: Flow) -> Iterator[str]:
        """The nodes its events have passed."""
        if flow.feed is not None:
            yield from self._way(flow.feed)
        yield self._world.names[flow.sender]

    def _code(self, path: str) -> int:
        if path not in self._paths:
            self._paths.append(path)
        return self._paths.index(path)

    def parts(self) -> Iterator[SegmentRows]:
        """The segments of the ledger."""
        world, node = self._world, self._node
        epoch_indexes = epochs_of(world, node, self._journal.at)
        times = self._journal.at + world.skews[node]
        for one in cut(self._sizes, times, epoch_indexes, world.segment_rows):
            after = int(self._position[one.begin]) - 1
            upto = int(self._position[one.end - 1] + self._sizes[one.end - 1]) - 1
            yield SegmentRows(Ledger.EVENTS, one.epoch_index, after, upto, int(times[one.begin]), self._tables(one))

    def _tables(self, one: Cut) -> Iterator[Any]:
        for block in blocks(self._sizes, one):
            numbers = numbers_of(self._world, self._journal, block, self._starts, held=True)
            found = self._catalogue.look_up(block, self._source[block.items], numbers)
            yield arrow_columns.table(Ledger.EVENTS, self._place(one, block) | self._event(block, found))

    def _place(self, one: Cut, block: Block) -> dict[str, Any]:
        world, node, within = self._world, self._node, block.within()
        position = arrow_columns.ints(block.spread(self._position) + within)
        return {
            "number": position,
            "node": arrow_columns.word(world.names[node], block.rows),
            "epoch": arrow_columns.word(world.epoch(node, one.epoch_index), block.rows),
            "group": arrow_columns.words(world.groups, block.spread(self._group)),
            "position": position,
            "seq": arrow_columns.ints(block.spread(self._seq) + within),
            "own": arrow_columns.flags(block.spread(self._journal.flow == OWN)),
            "path": arrow_columns.words(self._paths, block.spread(self._path)),
            "recorded_at": arrow_columns.times(block.spread(self._journal.at + world.skews[node])),
        }

    def _event(self, block: Block, found: EventRows) -> dict[str, Any]:
        world, (columns, at) = self._world, found
        owners = np.array([history.node for history in world.histories])
        expires_at, fingerprint = columns.expires_at[at], columns.fingerprint[at]
        subject = columns.subject[at]
        return {
            "id": arrow_columns.texts(columns.id[at]),
            "source": arrow_columns.words(world.names, block.spread(owners[self._source])),
            "type": arrow_columns.words(world.types, columns.type[at]),
            "subject": arrow_columns.texts(_SUBJECTS[subject]),
            "event_at": arrow_columns.times(columns.event_at[at]),
            "expires_at": arrow_columns.times(expires_at, expires_at == 0),
            "bytes": arrow_columns.small(columns.bytes[at]),
            "fingerprint": arrow_columns.ints(fingerprint),
            "digest": arrow_columns.blobs(digests(fingerprint)),
            "payload": self._payload(subject),
        }

    def _payload(self, subject: Smalls) -> Any:
        if not self._world.payloads:
            return pa.nulls(len(subject), pa.string())
        return arrow_columns.texts(_PAYLOADS[subject])


def _letters(texts: Iterable[str]) -> Bytes:
    """Texts of one length, [n, length]."""
    return np.array([list(text.encode()) for text in texts], np.uint8)


_SUBJECTS = _letters(f"10.88.{100 + at // 64}.{100 + at % 64}/32" for at in range(SUBJECTS))
_PAYLOADS = _letters(f'{{"mac":"02:42:0a:58:{at // 256:02x}:{at % 256:02x}"}}' for at in range(SUBJECTS))
