"""The book of events: what each node has in its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from eventd.audit.generate import arrays
from eventd.audit.generate.catalogue import Catalogue, Found
from eventd.audit.generate.courses import Course
from eventd.audit.generate.cutting import Block, Cut, blocks, cut, numbers_of
from eventd.audit.generate.history import SUBJECTS
from eventd.audit.generate.mixing import Bytes, Smalls, digests
from eventd.audit.generate.numbering import OWN, by_course, log_of, sizes_of
from eventd.audit.generate.segments import Part, turns_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Book
from federation.loops import encode_path


class EventsBook:
    """The events' book of one node."""

    def __init__(self, world: World, node: int, catalogue: Catalogue) -> None:
        self._world, self._node, self._catalogue = world, node, catalogue
        history = world.histories[node]
        self._sheet = sheet = log_of(world, node)
        self._sizes = sizes_of(world, sheet, history)
        self._position = np.cumsum(self._sizes) - self._sizes + 1
        self._starts, self._seq, self._group, self._source, self._path = (
            np.zeros(len(sheet), np.int64) for _ in range(5)
        )
        self._paths = [""]
        for uid, places in by_course(sheet):
            self._read(None if uid == OWN else world.courses[uid], places)

    def _read(self, course: Course | None, places: Any) -> None:
        batches = self._sheet.batch[places]
        if course is None:
            history = self._world.histories[self._node]
            self._starts[places] = history.first[batches]
            self._seq[places], self._group[places] = history.seq[batches], history.group[batches]
            self._source[places] = self._node
            return
        self._starts[places], self._seq[places] = course.held_at[batches], course.seq[batches]
        self._group[places], self._source[places] = course.group, course.source
        self._path[places] = self._code(encode_path(tuple(self._way(course))))

    def _way(self, course: Course) -> Iterator[str]:
        """The nodes its events have passed."""
        if course.feed is not None:
            yield from self._way(course.feed)
        yield self._world.names[course.sender]

    def _code(self, path: str) -> int:
        if path not in self._paths:
            self._paths.append(path)
        return self._paths.index(path)

    def parts(self) -> Iterator[Part]:
        """The segments of the book."""
        world, node = self._world, self._node
        turns = turns_of(world, node, self._sheet.at)
        times = self._sheet.at + world.skews[node]
        for one in cut(self._sizes, times, turns, world.segment_rows):
            after = int(self._position[one.begin]) - 1
            upto = int(self._position[one.end - 1] + self._sizes[one.end - 1]) - 1
            yield Part(Book.EVENTS, one.turn, after, upto, int(times[one.begin]), self._tables(one))

    def _tables(self, one: Cut) -> Iterator[Any]:
        for block in blocks(self._sizes, one):
            numbers = numbers_of(self._world, self._sheet, block, self._starts, held=True)
            found = self._catalogue.look_up(block, self._source[block.items], numbers)
            yield arrays.table(Book.EVENTS, self._place(one, block) | self._event(block, found))

    def _place(self, one: Cut, block: Block) -> dict[str, Any]:
        world, node, within = self._world, self._node, block.within()
        position = arrays.ints(block.spread(self._position) + within)
        return {
            "number": position,
            "node": arrays.word(world.names[node], block.rows),
            "epoch": arrays.word(world.epoch(node, one.turn), block.rows),
            "group": arrays.words(world.groups, block.spread(self._group)),
            "position": position,
            "seq": arrays.ints(block.spread(self._seq) + within),
            "own": arrays.flags(block.spread(self._sheet.course == OWN)),
            "path": arrays.words(self._paths, block.spread(self._path)),
            "recorded_at": arrays.times(block.spread(self._sheet.at + world.skews[node])),
        }

    def _event(self, block: Block, found: Found) -> dict[str, Any]:
        world, (facts, at) = self._world, found
        owners = np.array([history.node for history in world.histories])
        expires_at, fingerprint = facts.expires_at[at], facts.fingerprint[at]
        subject = facts.subject[at]
        return {
            "id": arrays.texts(facts.id[at]),
            "source": arrays.words(world.names, block.spread(owners[self._source])),
            "type": arrays.words(world.types, facts.type[at]),
            "subject": arrays.texts(_SUBJECTS[subject]),
            "event_at": arrays.times(facts.event_at[at]),
            "expires_at": arrays.times(expires_at, expires_at == 0),
            "bytes": arrays.small(facts.bytes[at]),
            "fingerprint": arrays.ints(fingerprint),
            "digest": arrays.blobs(digests(fingerprint)),
            "payload": self._payload(subject),
        }

    def _payload(self, subject: Smalls) -> Any:
        if not self._world.payloads:
            return pa.nulls(len(subject), pa.string())
        return arrays.texts(_PAYLOADS[subject])


def _letters(texts: Iterable[str]) -> Bytes:
    """Texts of one length, [n, length]."""
    return np.array([list(text.encode()) for text in texts], np.uint8)


_SUBJECTS = _letters(f"10.88.{100 + at // 64}.{100 + at % 64}/32" for at in range(SUBJECTS))
_PAYLOADS = _letters(f'{{"mac":"02:42:0a:58:{at // 256:02x}:{at % 256:02x}"}}' for at in range(SUBJECTS))
