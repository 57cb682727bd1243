"""The ledger of events: a row for each event in the log of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from eventd.audit.generate import arrow_columns
from eventd.audit.generate.catalogue import EventCatalogue, EventRows
from eventd.audit.generate.emitters import SUBJECTS
from eventd.audit.generate.flows import Flow
from eventd.audit.generate.log_positions import OWN, by_flow, log_of, sizes_of
from eventd.audit.generate.pseudo_random import Bytes, Smalls, digests
from eventd.audit.generate.segments import Block, SegmentRange, SegmentRows, blocks, divide, epochs_of, numbers_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger
from federation.loops import encode_path


class EventsLedger:
    """The events ledger of one node."""

    def __init__(self, world: World, node: int, catalogue: EventCatalogue) -> None:
        self._world, self._node, self._catalogue = world, node, catalogue
        emitter = world.emitters[node]
        self._journal = journal = log_of(world, node)
        self._sizes = sizes_of(world, journal, emitter)
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
            emitter = self._world.emitters[self._node]
            self._starts[places] = emitter.first[batches]
            self._seq[places], self._group[places] = emitter.seq[batches], emitter.group[batches]
            self._source[places] = self._node
            return
        self._starts[places], self._seq[places] = flow.held_at[batches], flow.seq[batches]
        self._group[places], self._source[places] = flow.group, flow.source
        self._path[places] = self._code(encode_path(tuple(self._path_of(flow))))

    def _path_of(self, flow: Flow) -> Iterator[str]:
        """Yield the names of the nodes on the path of the flow's events, from their source to the flow's sender."""
        if flow.feed is not None:
            yield from self._path_of(flow.feed)
        yield self._world.names[flow.sender]

    def _code(self, path: str) -> int:
        if path not in self._paths:
            self._paths.append(path)
        return self._paths.index(path)

    def segments(self) -> Iterator[SegmentRows]:
        """Yield the segments of the events ledger, in order; their tables are built when they are read."""
        world, node = self._world, self._node
        epoch_indexes = epochs_of(world, node, self._journal.at)
        times = self._journal.at + world.skews[node]
        for one in divide(self._sizes, times, epoch_indexes, world.segment_rows):
            after = int(self._position[one.begin]) - 1
            upto = int(self._position[one.end - 1] + self._sizes[one.end - 1]) - 1
            yield SegmentRows(Ledger.EVENTS, one.epoch_index, after, upto, int(times[one.begin]), self._tables(one))

    def last_seq(self, group: int, epoch_index: int) -> int:
        """Return the last seq that the node assigned in a group up to the end of an epoch (0 or 1); 0 for none."""
        kept = (self._group == group) & (epochs_of(self._world, self._node, self._journal.at) <= epoch_index)
        return int((self._seq + self._sizes - 1)[kept].max(initial=0))

    def _tables(self, one: SegmentRange) -> Iterator[Any]:
        for block in blocks(self._sizes, one):
            numbers = numbers_of(self._world, self._journal, block, self._starts, held=True)
            found = self._catalogue.look_up(block, self._source[block.items], numbers)
            yield arrow_columns.table(Ledger.EVENTS, self._log_columns(one, block) | self._event_columns(block, found))

    def _log_columns(self, one: SegmentRange, block: Block) -> dict[str, Any]:
        world, node, within = self._world, self._node, block.within()
        position = arrow_columns.int64(block.spread(self._position) + within)
        return {
            "number": position,
            "node": arrow_columns.constant(world.names[node], block.rows),
            "epoch": arrow_columns.constant(world.epoch(node, one.epoch_index), block.rows),
            "group": arrow_columns.dictionary(world.groups, block.spread(self._group)),
            "position": position,
            "seq": arrow_columns.int64(block.spread(self._seq) + within),
            "own": arrow_columns.booleans(block.spread(self._journal.flow == OWN)),
            "path": arrow_columns.dictionary(self._paths, block.spread(self._path)),
            "recorded_at": arrow_columns.timestamps(block.spread(self._journal.at + world.skews[node])),
        }

    def _event_columns(self, block: Block, found: EventRows) -> dict[str, Any]:
        world, (columns, at) = self._world, found
        owners = np.array([emitter.node for emitter in world.emitters])
        expires_at, fingerprint = columns.expires_at[at], columns.fingerprint[at]
        subject = columns.subject[at]
        return {
            "id": arrow_columns.strings(columns.id[at]),
            "source": arrow_columns.dictionary(world.names, block.spread(owners[self._source])),
            "type": arrow_columns.dictionary(world.types, columns.type[at]),
            "subject": arrow_columns.strings(_SUBJECTS[subject]),
            "event_at": arrow_columns.timestamps(columns.event_at[at]),
            "expires_at": arrow_columns.timestamps(expires_at, expires_at == 0),
            "bytes": arrow_columns.int32(columns.bytes[at]),
            "fingerprint": arrow_columns.int64(fingerprint),
            "digest": arrow_columns.digests(digests(fingerprint)),
            "payload": self._payload(subject),
            # The digests are not of these contents, so none can be compared.
            "dedupe_key": pa.array([""] * len(subject), pa.string()),
        }

    def _payload(self, subject: Smalls) -> Any:
        if not self._world.payloads:
            return pa.nulls(len(subject), pa.string())
        return arrow_columns.strings(_PAYLOADS[subject])


def _characters(texts: Iterable[str]) -> Bytes:
    """Return texts of equal length as ASCII bytes, [n, length]."""
    return np.array([list(text.encode()) for text in texts], np.uint8)


_SUBJECTS = _characters(f"10.88.{100 + at // 64}.{100 + at % 64}/32" for at in range(SUBJECTS))
_PAYLOADS = _characters(f'{{"mac":"02:42:0a:58:{at // 256:02x}:{at % 256:02x}"}}' for at in range(SUBJECTS))
