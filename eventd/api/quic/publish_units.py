"""The units of the log that the batches of one stream become.

Batches for one topic that arrive while others are being written share a unit, because a unit costs as much as dozens of
records. A batch is never split, and a batch with no others before it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from eventd.api.quic.publishing import (
    Publisher,
    PublishOrder,
    PublishRefusal,
    PublishTarget,
    StoredBatch,
    refusal_of,
)
from eventd.errors import EventdError
from eventd.log.topics.stream_write import PublishRecords
from eventd.log.topics.write import WriteResult

T = TypeVar("T")

UNIT_RECORDS: Final = 512
UNIT_BYTES: Final = 256 << 10
"""Maximum bytes of a unit of several batches, so that it is written as quickly as that of a single client."""

logger = logging.getLogger("eventd.streams")


class QueuedBatch(NamedTuple, Generic[T]):
    """A batch, and the value by which its owner recognizes it."""

    payloads: Sequence[bytes]
    size: int
    owner: T


class SharedUnit(Generic[T]):
    """Batches that become one unit."""

    def __init__(self, target: PublishTarget) -> None:
        self.target = target
        self.batches: list[QueuedBatch[T]] = []
        self.records = 0
        self.size = 0

    def takes(self, target: PublishTarget, batch: QueuedBatch[T]) -> bool:
        """Return whether a batch may join the others."""
        if target is not self.target:
            return False
        return self.records + len(batch.payloads) <= UNIT_RECORDS and self.size + batch.size <= UNIT_BYTES

    def add(self, batch: QueuedBatch[T]) -> None:
        """Append a batch."""
        self.batches.append(batch)
        self.records += len(batch.payloads)
        self.size += batch.size


class PublishUnits(Generic[T]):
    """Writes the batches of one stream, in their order.

    `done` is called for each with its result or refusal, and then `settled` once for all that were done together.
    """

    def __init__(
        self,
        publisher: Publisher,
        subject: Callable[[], str],
        done: Callable[[T, StoredBatch | PublishRefusal], None],
        settled: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._subject = subject
        self._done = done
        self._settled = settled
        self._order = PublishOrder()
        self._open: SharedUnit[T] | None = None
        self._is_due = False

    def add(self, target: PublishTarget, batch: QueuedBatch[T], key: str) -> None:
        """Write a batch, whose records must be valid; with a `key`, only if none with this key was written before."""
        if self._open is not None and (key or not self._open.takes(target, batch)):
            self.flush()
        if self._open is None:
            self._open = SharedUnit(target)
        self._open.add(batch)
        if key:
            self.flush(key)

    def flush_first(self) -> None:
        """Submit the waiting batches immediately if no unit is under way, else at the end of this turn of the loop."""
        if self._open is None:
            return
        if self._order.is_idle:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush_due)

    def flush(self, key: str = "") -> None:
        """Submit the waiting batches."""
        unit, self._open = self._open, None
        if unit is not None:
            self._submit(unit, key)

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()

    def _submit(self, unit: SharedUnit[T], key: str = "") -> None:
        batches = unit.batches
        payloads = [batch.payloads for batch in batches]
        try:
            submitted = self._publisher.submit(self._order, self._subject(), unit.target, payloads, key)
        except PublishRefusal as refusal:
            for batch in batches:
                self._done(batch.owner, refusal)
            self._settled()
        else:
            submitted.future.add_done_callback(partial(self._written, unit, submitted.unit))

    def _written(self, unit: SharedUnit[T], written: PublishRecords, future: asyncio.Future[WriteResult]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._share(unit, self._publisher.stored(future.result()), written.refused)
        else:
            if not isinstance(error, EventdError | asyncio.CancelledError):
                logger.error("publish failed", exc_info=error)
            for batch in unit.batches:
                self._done(batch.owner, refusal_of(error, unit.target.name))
        self._settled()

    def _share(self, unit: SharedUnit[T], stored: StoredBatch, refused: Mapping[int, EventdError]) -> None:
        """Report to each batch which of the records are its own."""
        if len(unit.batches) == 1:
            self._done(unit.batches[0].owner, stored)
            return
        offset = stored.offset
        for index, batch in enumerate(unit.batches):
            if (error := refused.get(index)) is not None:
                self._done(batch.owner, refusal_of(error, unit.target.name))
                continue
            count = len(batch.payloads)
            self._done(batch.owner, StoredBatch(offset, count, stored.durability, stored.epoch))
            offset += count
