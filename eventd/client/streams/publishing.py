"""Publishes records: those that are published at the same time share frames, and each publish has its own answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

from eventd.client.refusals.answers import another
from eventd.client.refusals.kinds import Lost
from eventd.client.streams.lane import Lane, LaneTiming, PublishReceipt, RequestAnswer
from eventd.client.streams.request_stream import Abilities
from eventd.client.streams.values import Published
from eventd.errors import EventdError, Forbidden, NotFound, TooLarge, Unauthorized, Unavailable
from eventd.streams.base64_text import write_bytes
from eventd.streams.frames import MAX_PAYLOAD, encode_frame
from eventd.streams.layouts import PublishBatch, write_publish
from eventd.streams.limits import MAX_RECORD, MAX_RECORDS
from eventd.streams.messages import PublishBatchRequest, write_message
from eventd.streams.names import StreamName

FULL: Final = 64
"""Maximum number of records in a frame that several publishes share."""
FULL_BYTES: Final = 1 << 20
"""Maximum bytes of the payloads in such a frame, unless a single publish has more."""
OVERHEAD: Final = 1024
"""Bytes of a frame that are not payloads: names, the id, the count."""
WINDOW_BYTES: Final = 8 << 20
"""Maximum bytes of payloads that wait or are under way, unless a single publish has more."""


class WaitingPublish:
    """One call: its payloads, their bytes, and the future that its caller awaits."""

    __slots__ = ("answer", "payloads", "size")

    def __init__(self, payloads: Sequence[bytes], size: int, answer: asyncio.Future[Published]) -> None:
        self.payloads = payloads
        self.size = size
        self.answer = answer


class PublishFrame:
    """A frame under way, as a request of a lane."""

    is_repeatable = False
    failures = 0

    def __init__(self, queue: PublishQueue, number: int, deadline: float, publishes: Sequence[WaitingPublish]) -> None:
        self.id = number
        self.deadline = deadline
        self.publishes = publishes
        self._queue = queue

    def encode(self, abilities: Abilities) -> bytes:
        name = self._queue.name
        payloads = [payload for publish in self.publishes for payload in publish.payloads]
        if abilities.acknowledges:
            return write_publish(PublishBatch(*name, payloads), self.id)
        texts = [write_bytes(payload) for payload in payloads]
        message = PublishBatchRequest(
            tenant_id=name.tenant,
            namespace=name.namespace,
            stream=name.stream,
            payloads=texts,
            request_id=self.id,
            ack="per_batch",
        )
        return encode_frame(0, write_message(message))

    def settle(self, answer: RequestAnswer | EventdError) -> None:
        self._queue.settled(self, answer)


class PublishQueue:
    """The publishes to one stream that wait for a frame or are under way, in their order."""

    def __init__(self, publishing: Publishing, name: StreamName, lane: Lane) -> None:
        self.name = name
        self.waiting: deque[WaitingPublish] = deque()
        self._records = 0  # of those that wait
        self._frames = 0  # under way
        self._publishing = publishing
        self._lane = lane

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits and nothing is under way."""
        return not self._frames and not self.waiting

    def put(self, publish: WaitingPublish) -> None:
        """Send a publish immediately if no frame is under way.

        Otherwise it waits, and shares a later frame with others.
        """
        self.waiting.append(publish)
        self._records += len(publish.payloads)
        self._flush()

    def settled(self, frame: PublishFrame, answer: RequestAnswer | EventdError) -> None:
        """Give each publish of a frame its answer.

        If the error may concern only one of several publishes, each is sent again alone.
        """
        self._frames -= 1
        if isinstance(answer, EventdError) and len(frame.publishes) > 1 and _is_of_one(answer):
            for publish in frame.publishes:
                self._send([publish])
        else:
            _resolve(frame.publishes, answer)
            self._publishing.release(frame.publishes)
        self._flush()
        self._publishing.drop_if_idle(self)

    def fail(self, error: EventdError) -> None:
        """Give everything that waits an error."""
        publishes = [*self.waiting]
        self.waiting.clear()
        self._records = 0
        _resolve(publishes, error)
        self._publishing.release(publishes)

    def _flush(self) -> None:
        while self.waiting and (not self._frames or self._records >= FULL):
            publishes = [*self._take()]
            if live := [publish for publish in publishes if not publish.answer.cancelled()]:
                self._send(live)
            if len(live) < len(publishes):
                self._publishing.release([publish for publish in publishes if publish.answer.cancelled()])

    def _take(self) -> Iterator[WaitingPublish]:
        """Remove and yield the publishes that the next frame carries."""
        records = size = 0
        while self.waiting:
            publish = self.waiting[0]
            records += len(publish.payloads)
            size += publish.size
            if records > len(publish.payloads) and (records > FULL or size > FULL_BYTES):
                return
            self._records -= len(publish.payloads)
            yield self.waiting.popleft()

    def _send(self, publishes: Sequence[WaitingPublish]) -> None:
        self._frames += 1
        self._lane.ask(PublishFrame(self, *self._publishing.number(), publishes))


class Publishing:
    """All acknowledged publishes of a client: up to `window` records of them wait or are under way."""

    def __init__(self, lanes: Sequence[Lane], timing: LaneTiming, window: int) -> None:
        self._lanes = lanes
        self._timing = timing
        self._window = window
        self._queues: dict[StreamName, PublishQueue] = {}
        self._number = 0
        self._records = 0
        self._bytes = 0
        self._crowd: deque[tuple[asyncio.Future[None], int, int]] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._is_closed = False

    async def publish(self, name: StreamName, payloads: Sequence[bytes]) -> Published:
        """Publish records and return the node's answer."""
        size = require_size(payloads)
        await self._room(len(payloads), size)
        if self._is_closed:
            self._free(len(payloads), size)
            raise closed()
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = PublishQueue(self, name, self._lanes[place_of(name, len(self._lanes))])
        answer: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        queue.put(WaitingPublish(payloads, size, answer))
        return await answer

    def number(self) -> tuple[int, float]:
        """Return the id of a new frame, and the time at which it fails without an answer."""
        self._number += 1
        return self._number, self._timing.deadline()

    def release(self, publishes: Sequence[WaitingPublish]) -> None:
        """Free the room in the window of publishes that are answered."""
        self._free(sum(len(publish.payloads) for publish in publishes), sum(publish.size for publish in publishes))

    def drop_if_idle(self, queue: PublishQueue) -> None:
        """Forget a queue if none of its publishes waits or is under way."""
        if queue.is_idle:
            self._queues.pop(queue.name, None)

    async def drain(self) -> None:
        """Wait until every publish has its answer."""
        if self._records or self._crowd:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def close(self) -> None:
        """Give everything that waits an error."""
        self._is_closed = True
        for queue in [*self._queues.values()]:
            queue.fail(closed())
        for lane in self._lanes:
            lane.close(closed())
        for place, _, _ in self._crowd:
            if not place.done():
                place.set_exception(closed())
        self._crowd.clear()

    def _fits(self, records: int, size: int) -> bool:
        if not self._records:
            return True
        return self._records + records <= self._window and self._bytes + size <= WINDOW_BYTES

    async def _room(self, records: int, size: int) -> None:
        """Wait until the window has room for a publish, and take that room."""
        if not self._crowd and self._fits(records, size):
            self._records += records
            self._bytes += size
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._crowd.append((place, records, size))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._free(records, size)
            raise

    def _free(self, records: int, size: int) -> None:
        self._records -= records
        self._bytes -= size
        while self._crowd:
            place, records, size = self._crowd[0]
            if not place.done() and not self._fits(records, size):
                return
            self._crowd.popleft()
            if not place.done():
                self._records += records
                self._bytes += size
                place.set_result(None)
        if not self._records and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


def require_size(payloads: Sequence[bytes]) -> int:
    """Return the total size of the payloads in bytes. Raises `TooLarge` if the node would refuse them."""
    if (largest := max(map(len, payloads), default=0)) > MAX_RECORD:
        raise TooLarge(f"a payload has {largest} bytes, more than {MAX_RECORD}", hint="publish it in several records")
    size = sum(map(len, payloads))
    if len(payloads) > MAX_RECORDS:
        raise TooLarge(f"{len(payloads)} records are more than {MAX_RECORDS}", hint="publish several batches")
    if size + 4 * len(payloads) + OVERHEAD > MAX_PAYLOAD:
        raise TooLarge(
            f"{size} bytes in {len(payloads)} records do not fit into a frame of {MAX_PAYLOAD}",
            hint="publish several batches",
        )
    return size


def place_of(name: StreamName, count: int) -> int:
    """Return a number below `count` for the stream, always the same one: its records use one lane and keep their
    order."""
    return crc32("/".join(name).encode()) % count


def closed() -> Unavailable:
    """Return the error for a publish that had no answer when the client was closed."""
    return Lost("the client was closed before the answer came", hint="publish again: the records may be stored")


def _is_of_one(error: EventdError) -> bool:
    """Return whether an error may be caused by one of several publishes, and not by the stream or the client."""
    return not isinstance(error, Forbidden | NotFound | Unauthorized | Unavailable)


def _resolve(publishes: Sequence[WaitingPublish], answer: RequestAnswer | EventdError) -> None:
    at = answer.offset if isinstance(answer, PublishReceipt) else None
    for publish in publishes:
        if not publish.answer.done():
            if isinstance(answer, EventdError):
                alone = len(publishes) == 1
                publish.answer.set_exception(answer if alone else another(answer, answer.message))
            elif isinstance(answer, PublishReceipt):
                publish.answer.set_result(Published(at, len(publish.payloads), answer.durability, answer.epoch))
            else:
                publish.answer.set_exception(EventdError("the answer is not that of a publish"))
        if at is not None:
            at += len(publish.payloads)
