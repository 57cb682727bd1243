"""Publishing: the claim of the topic, its count, the idempotency key and the record are written as one unit."""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.log.core.commit import Transaction
from eventd.log.core.durability import DurabilityCache
from eventd.log.core.records import encoded, join_body
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.values import Drafts
from eventd.log.routemaster.errors import TopicClaimed
from eventd.log.routemaster.times import EventTime, give_time
from eventd.log.topics.errors import Throttled
from eventd.log.topics.topics import ROUTEMASTER
from eventd.log.topics.write import Write
from eventd.store.engine.database import Connection
from eventd.store.rows.routemaster import RmTopicRow, count_rm_topics, count_unclaimed, find_rm_topic, put_rm_topic
from federation.lines import size_of

MOST_TOPICS: Final = 10_000
"""Maximum number of topics of the surface."""
MOST_UNCLAIMED: Final = 5_000
"""Maximum number of topics without a publisher, which subscriptions create. The rest of `MOST_TOPICS` is left to
publishers, however many topics subscribers name."""


class PublishedEvent(NamedTuple):
    """An event of a publisher.

    `t` and `data` are JSON texts. If `t` is empty, the node sets the time; if `data` is empty, the event has no data.
    """

    topic: str
    type: str
    url: str
    t: str = ""
    data: str = ""

    @property
    def size(self) -> int:
        """Return the bytes of what the publisher sent: topic, type, URL, time and data."""
        return sum(map(size_of, self))

    def draft(self, publisher: str, t: int | None) -> Drafts:
        """Return the event as a record. `t`: the time for an event whose publisher gave none."""
        data = f'{{"url":{encoded(self.url)},"t":{self.t or t}'
        data += f',"data":{self.data}}}' if self.data else "}"
        tag = f"{self.topic}.{self.type}"
        body = join_body(encoded(publisher), encoded(tag), data, "")
        types, sources = frozenset((tag,)), frozenset((publisher,))
        return Drafts(paths=[""], bodies=[body], types=types, sources=sources, sizes=[size_of(data)])


class PublishEvent(Write):
    """Append one event of a `publisher`, an identity, which claims the topic if it is the first. Result: `WriteResult`.

    Raises `TopicClaimed`, and `Throttled` and `TopicFull` as `Write` does. Nothing is stored for a refused event, nor
    for a repeated one (with the same key of the same publisher for the same topic).
    """

    def __init__(
        self,
        event: PublishedEvent,
        publisher: str,
        *,
        flushes: DurabilityCache,
        config: TopicConfig,
        key: str = "",
        max_bytes: int = 0,
        random: bytes = b"",
    ) -> None:
        key = f"{event.topic} {publisher} {key}" if key else ""
        draft = event.draft(publisher, 0)
        super().__init__(
            ROUTEMASTER, draft, flushes=flushes, key=key, config=config, max_bytes=max_bytes, random=random
        )
        self._event = event
        self._publisher = publisher

    def admit(self, tx: Transaction) -> Drafts:
        event = self._event
        topic = find_rm_topic(tx.conn, event.topic)
        if topic is None:
            require_room(tx.conn, 1)
            topic = RmTopicRow(event.topic, created_at=tx.now)
        require_claim(topic, self._publisher)
        given = EventTime(0, topic.base, topic.recent)
        if not event.t:
            given = give_time(topic.base, topic.recent, event.url, tx.now // 1000)
        self._drafts = event.draft(self._publisher, given.t)
        drafts = super().admit(tx)
        if drafts:
            counted = topic._replace(events=topic.events + 1, base=given.base, recent=given.recent)
            put_rm_topic(tx.conn, counted._replace(publisher=self._publisher))
        return drafts


def require_claim(topic: RmTopicRow | None, publisher: str) -> None:
    """Raise `TopicClaimed` if another client is the publisher of the topic."""
    if topic is not None and topic.publisher not in ("", publisher):
        raise TopicClaimed(topic.name)


def require_room(conn: Connection, more: int) -> None:
    """Raise `Throttled` if `more` new topics would be too many."""
    if more and count_rm_topics(conn) + more > MOST_TOPICS:
        raise Throttled(f"the Routemaster surface has {MOST_TOPICS} topics: delete some")


def require_unclaimed_room(conn: Connection, more: int) -> None:
    """Raise `Throttled` if `more` new topics without a publisher would be too many."""
    require_room(conn, more)
    if more and count_unclaimed(conn) + more > MOST_UNCLAIMED:
        raise Throttled(f"{MOST_UNCLAIMED} topics have subscribers and no publisher: delete some, or publish to them")
