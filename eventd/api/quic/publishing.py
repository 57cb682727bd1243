"""Publishing: the records of a frame become one unit of the log's writer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from eventd.api.quic import answers
from eventd.api.quic.interfaces import ClientGrant
from eventd.api.quic.options import StreamOptions
from eventd.api.topics.calls import V0
from eventd.api.topics.write import MAX_NODE_BYTES, MAX_RECORD_BYTES, MAX_RECORDS
from eventd.errors import Unavailable
from eventd.log.core.commit import Turn
from eventd.log.core.records import encoded
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.values import Drafts
from eventd.log.topics.errors import BatchTooLarge, RecordTooLarge, Throttled, TopicFull, TopicNotFound
from eventd.log.topics.stream_write import PublishRecords
from eventd.log.topics.topic_page import epoch_of
from eventd.log.topics.write import WriteResult
from eventd.streams.messages import RequestId
from eventd.streams.names import StreamName
from eventd.streams.payloads import texts_of
from eventd.streams.permissions import StreamAction
from federation.event import is_plain
from federation.lines import size_of

_NO_TYPES: Final = frozenset[str]()


class PublishRefusal(Exception):
    """A publish that is not written. `text` is for the client, `reason` a fixed word for the metrics."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason


class PublishTarget(NamedTuple):
    """A stream that a client publishes to; `refusal` says why it may not, empty if it may."""

    name: StreamName
    topic: str
    refusal: str

    @classmethod
    def of(cls, name: StreamName, grant: ClientGrant) -> PublishTarget:
        """Return the target for a client with this grant."""
        refusal = ""
        if name.tenant != grant.tenant:
            refusal = answers.TENANT_MISMATCH
        elif not grant.allows(StreamAction.PUBLISH, name.resource):
            refusal = answers.FORBIDDEN
        return cls(name, name.topic if name.is_possible else "", refusal)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that is written, as its acknowledgement describes it."""

    offset: int
    count: int
    durability: str
    epoch: str


class PublishOrder:
    """Keeps the batches of one stream in their order, by giving all units that are under way the same `Turn`."""

    def __init__(self) -> None:
        self._under_way = 0
        self._turn = Turn.FRONT

    @property
    def is_idle(self) -> bool:
        """Return whether no unit is under way."""
        return not self._under_way

    def join(self, unit: PublishRecords) -> None:
        """Let a unit follow those that are under way; call `leave` when it is done."""
        if self._under_way:
            unit.turn = self._turn
        self._turn = unit.turn
        self._under_way += 1

    def leave(self, _done: object) -> None:
        """Note that a unit is done."""
        self._under_way -= 1


class SubmittedUnit(NamedTuple):
    """Batches that are being written. Once the future is done, the unit has the errors of those that did not fit."""

    unit: PublishRecords
    future: asyncio.Future[WriteResult]


class Publisher:
    """Submits batches to the log."""

    def __init__(self, v0: V0, options: StreamOptions) -> None:
        self._v0 = v0
        self._log = v0.log
        self._create = options.auto_create
        self._config = TopicConfig()
        self._heads: dict[str, tuple[str, frozenset[str]]] = {}

    def submit(
        self, order: PublishOrder, subject: str, target: PublishTarget, batches: Sequence[Sequence[bytes]], key: str
    ) -> SubmittedUnit:
        """Queue batches; the future gets their result once they are as durable as their topic requires.

        Raises `PublishRefusal` if the node stops.
        """
        payloads = batches[0] if len(batches) == 1 else [*chain.from_iterable(batches)]
        unit = PublishRecords(
            target.topic,
            self._drafts(subject, payloads),
            counts=[*map(len, batches)],
            flushes=self._log.flushes,
            key=key,
            create=self._create,
            config=self._config,
            max_topics=self._v0.limits.max_topics,
            max_bytes=self._v0.limits.max_total_bytes,
            random=self._log.chance.token(16) if self._create else b"",
        )
        order.join(unit)
        try:
            future = self._log.submit(unit)
        except Unavailable:
            order.leave(unit)
            raise PublishRefusal(answers.OVERLOADED, "overloaded") from None
        future.add_done_callback(order.leave)
        return SubmittedUnit(unit, future)

    def _drafts(self, subject: str, payloads: Sequence[bytes]) -> Drafts:
        """Return payloads in the stored form of records whose node is the subject, where it can be one."""
        found = self._heads.get(subject)
        if found is None:
            if len(self._heads) > 1000:
                self._heads.clear()
            is_node = bool(subject) and is_plain(subject) and size_of(subject) <= MAX_NODE_BYTES
            head = f'{{"$node":{encoded(subject)},"data":' if is_node else '{"data":'
            found = self._heads[subject] = head, frozenset((subject if is_node else "",))
        head, sources = found
        bodies, sizes = texts_of(payloads, head, "}")
        return Drafts(paths=[""] * len(bodies), bodies=bodies, types=_NO_TYPES, sources=sources, sizes=sizes)

    def stored(self, written: WriteResult) -> StoredBatch:
        """Return the result of a unit for its acknowledgement."""
        return StoredBatch(
            written.first_seq - 1,
            written.last_seq - written.first_seq + 1,
            written.durability,
            epoch_of(self._log.epoch, written.topic_id),
        )


def require_valid(target: PublishTarget, payloads: Sequence[bytes]) -> None:
    """Raises `PublishRefusal` for a batch that no topic takes."""
    if len(payloads) > MAX_RECORDS:
        raise PublishRefusal(answers.BATCH_TOO_LARGE, "too_large")
    if payloads and max(map(len, payloads)) > MAX_RECORD_BYTES:
        raise PublishRefusal(answers.RECORD_TOO_LARGE, "too_large")
    if not target.topic:
        raise PublishRefusal(answers.stream_not_found(target.name), "unknown_stream")


def refusal_of(error: BaseException, name: StreamName) -> PublishRefusal:
    """Return the refusal of a unit that was not written, or may not have been."""
    if isinstance(error, TopicNotFound):
        return PublishRefusal(answers.stream_not_found(name), "unknown_stream")
    if isinstance(error, TopicFull):
        return PublishRefusal(answers.TOPIC_FULL, "full")
    if isinstance(error, RecordTooLarge | BatchTooLarge):
        return PublishRefusal(answers.RECORD_TOO_LARGE, "too_large")
    if isinstance(error, Throttled):
        return PublishRefusal(answers.OVERLOADED, "overloaded")
    return PublishRefusal(answers.UNCERTAIN, "failed")


def write_key(session: str, request_id: RequestId) -> str:
    """Return the idempotency key of a request of a session."""
    return "stream:" + blake2b(msgspec.json.encode([session, request_id]), digest_size=24).hexdigest()


def read_receipt(batch: StoredBatch) -> str:
    """Return the message of a binary acknowledgement: JSON."""
    return msgspec.json.encode(batch).decode()
