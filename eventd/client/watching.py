"""Watches topics: existing records, then new ones, also after interruptions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct

from eventd.client.connection import Connection, Frame, path_of
from eventd.client.refusals.answers import detail_of
from eventd.client.values import Batch, CaughtUp, Gap, Sight, TopicDeleted
from eventd.errors import NotFound, Unavailable

_OTHER_EPOCH = "-"
"""An epoch that no topic has."""


class Options(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Which records a watch delivers, and with which members.

    In topics with `dedupe_node`, records of `node` are left out. `limit` and `max_batch_bytes` bound a batch. After
    `heartbeat_ms` of silence the node sends a comment.
    """

    node: Sequence[str] = ()
    limit: int = 256
    max_batch_bytes: int = 262_144
    heartbeat_ms: int = 15_000
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True


class _Start(Struct, kw_only=True, omit_defaults=True):
    from_seq: int = 0
    tail: bool = False
    epoch: str | None = None


class _Ask(Options, kw_only=True, frozen=True, omit_defaults=True):
    topics: Mapping[str, _Start]
    include_epoch: bool = False


class _Position(Struct):
    from_seq: int
    head_seq: int
    epoch: str | None = None


class _Session(Struct):
    wid: str
    topics: dict[str, _Position]


class Watch:
    """An asynchronous iterable of `Batch`, `Gap`, `CaughtUp` and `TopicDeleted`.

    `topics` maps names to the seq after which a topic is watched; None: only records written after the watch begins.
    `epochs` are those of the seqs; without one, a seq counts as one of the present epoch.
    """

    def __init__(
        self, connection: Connection, topics: Mapping[str, int | None], epochs: Mapping[str, str], options: Options
    ) -> None:
        self._connection = connection
        self._options = options
        self._starts = dict(topics)
        # Of the seqs reached, as far as they are known.
        self._epochs = {topic: epoch for topic, epoch in epochs.items() if topics.get(topic) is not None}
        self._known: set[str] = set()  # topics that existed once
        self._session = ""
        self._last_id = ""  # of the last processed frame: the node continues from it
        self._failures = 0

    @property
    def cursors(self) -> dict[str, int]:
        """Return the seq reached in each topic, to begin a later watch there.

        Deleted topics are left out, and until the node has answered, those that begin at None.
        """
        return {topic: seq for topic, seq in self._starts.items() if seq is not None}

    @property
    def epochs(self) -> dict[str, str]:
        """Return the epochs of `cursors`, for the same later watch.

        Until the node has answered, they are those that were passed. A seq beyond the topic's newest one has the epoch
        `-` until its gap was reported.
        """
        return dict(self._epochs)

    def __aiter__(self) -> AsyncGenerator[Sight, None]:
        return self._run()

    async def _run(self) -> AsyncGenerator[Sight, None]:
        """Yield items until no topic is left; reconnect after an interruption, in a new session if its own has ended.

        Raises `Unavailable` after as many failures in a row as a request has tries, `NotFound` for a topic that the
        watch has never seen.
        """
        while self._starts:
            try:
                if not self._session:
                    await self._begin()
                async with aclosing(self._follow()) as sights:
                    async for sight in sights:
                        self._failures = 0
                        yield sight
            except NotFound as error:
                topic = detail_of(error).get("topic")
                if topic is None and self._session:
                    self._session = ""  # the node does not know it any more
                elif topic in self._known:
                    self._forget(topic)
                    yield TopicDeleted(topic=topic)
                else:
                    raise
            except Unavailable:
                if not self._session or self._failures + 1 >= self._connection.retry.tries:
                    raise  # creating a session has its own retries
            if self._starts:
                self._failures += 1
                await self._connection.pause(self._connection.delay(self._failures))

    async def _begin(self) -> None:
        """Create a session at the node that begins at the seqs reached; for None, at the head."""
        starts = {
            topic: _Start(from_seq=seq or 0, tail=seq is None, epoch=self._epochs.get(topic))
            for topic, seq in self._starts.items()
        }
        ask = _Ask(topics=starts, include_epoch=True, **msgspec.structs.asdict(self._options))
        session = await self._connection.ask("POST", "/v0/watch", _Session, ask)
        self._session, self._last_id = session.wid, ""
        self._starts = {topic: session.topics[topic].from_seq for topic in starts}
        self._known.update(starts)
        for topic, begun in session.topics.items():
            if begun.epoch is None:
                continue
            if begun.from_seq > begun.head_seq:  # until its gap, a later watch must not take it for a present one
                self._epochs[topic] = _OTHER_EPOCH
            else:  # another epoch than the present one is kept: a gap comes before anything else of the topic
                self._epochs.setdefault(topic, begun.epoch)

    def _forget(self, topic: str) -> None:
        self._starts.pop(topic, None)
        self._epochs.pop(topic, None)
        self._known.discard(topic)

    async def _follow(self) -> AsyncGenerator[Sight, None]:
        """Yield the items of one stream until it ends."""
        silence = 3 * max(self._options.heartbeat_ms, 1000) / 1000
        path = path_of("watch", self._session)
        async with self._connection.stream(path, last_id=self._last_id, silence=silence) as frames:
            async for frame in frames:
                sight = self._see(frame)
                self._last_id = frame.id or self._last_id
                if sight is not None:
                    yield sight

    def _see(self, frame: Frame) -> Sight | None:
        decode = self._connection.decode
        match frame.event:
            case "record":
                batch = decode(frame.data, Batch)
                self._starts[batch.topic] = batch.to_seq
                return batch
            case "tombstone":
                gap = decode(frame.data, Gap)
                seen = self._starts.get(gap.topic) or 0
                # Of another epoch, or of an earlier topic of this name, nothing of the present one was seen.
                is_recreated = gap.reason == "recreated" or seen > gap.head_seq
                self._starts[gap.topic] = gap.earliest_seq - 1 if is_recreated else max(seen, gap.last)
                if gap.epoch is not None:
                    self._epochs[gap.topic] = gap.epoch
                return gap
            case "caught-up":
                caught = decode(frame.data, CaughtUp)
                self._starts[caught.topic] = caught.head_seq
                return caught
            case "topic-deleted":
                deleted = decode(frame.data, TopicDeleted)
                self._forget(deleted.topic)
                return deleted
        return None
