"""Subscriptions: which events of which topics a client gets, as intervals of the log.

A change takes effect at the log's head in its transaction. A client still gets the events that were published to a
topic before it left the topic; of a topic that it adds, it gets only events that are published later. Each change is
one transaction.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.head import announce_topics
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import clear_failures, create_cursor, delete_cursors, read_cursors
from eventd.log.routemaster.errors import NotSubscribed, RmTopicNotFound, SubscriberNotFound, TopicClaimed
from eventd.log.routemaster.publish import require_unclaimed_room
from eventd.log.routemaster.surface_topic import create_topic
from eventd.log.topics.errors import Throttled
from eventd.log.topics.topics import ROUTEMASTER
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_attempts import forget_attempts
from eventd.store.rows.callback_cursors import CALLBACK, RESEND, SUBSCRIBER, resend_prefix
from eventd.store.rows.routemaster import (
    RmTopicRow,
    SubscriberRow,
    close_intervals,
    cursor_of,
    delete_rm_topic,
    delete_subscriber,
    drop_intervals,
    find_rm_topic,
    find_subscriber,
    intervals_of,
    known_rm_topics,
    open_intervals,
    put_rm_topic,
    put_subscriber,
    select_anew,
    set_publisher,
    subscribers_of,
)

TIMEOUT_MS: Final = 500
MAX_EVENTS: Final = 100
"""The defaults of a subscriber's batches."""
HOLD: Final = 7 * 24 * 3600 * SECOND
"""How long the events of a subscriber that fails are kept, in microseconds since its first failure in a row."""
MOST_INTERVALS: Final = 20_000
"""Maximum number of intervals of a subscriber: one for each of its topics, and for each topic that it left while
events of it still wait."""


class SubscriptionSettings(NamedTuple):
    """The settings of a subscriber, and the complete list of its topics.

    `timeout_ms` and `max_events` None: as before, or else the default.
    """

    topics: tuple[str, ...]
    callback: str
    uuid: str = ""
    timeout_ms: int | None = None
    max_events: int | None = None


class PutSubscriber(ChangeUnit[SubscriberRow]):
    """Make a client a subscriber, or change its settings and topics; unknown topics are created. Result: its row.

    Raises `Throttled` at the limits of topics and intervals.
    """

    def __init__(self, identity: str, wanted: SubscriptionSettings, *, config: TopicConfig, random: bytes) -> None:
        self._identity = identity
        self._wanted = wanted
        self._config = config
        self._random = random

    def make(self, tx: Transaction) -> SubscriberRow:
        conn, wanted, head = tx.conn, self._wanted, tx.head.last
        before = find_subscriber(conn, self._identity)
        topics = dict.fromkeys(wanted.topics)
        known = known_rm_topics(conn)
        unknown = [topic for topic in topics if topic not in known]
        present = dict.fromkeys(before.topics) if before is not None else {}
        require_unclaimed_room(conn, len(unknown))
        self._pass_intervals(conn)
        if len(intervals_of(conn, self._identity)) + len(topics.keys() - present.keys()) > MOST_INTERVALS:
            raise Throttled(f"a subscriber has at most {MOST_INTERVALS} topics, also left ones with events that wait")
        for topic in unknown:
            put_rm_topic(conn, RmTopicRow(topic, created_at=tx.now))
        put_subscriber(conn, self._row(before, tx.now))
        for topic in [topic for topic in present if topic not in topics]:
            close_intervals(conn, head, topic=topic, identity=self._identity)
        open_intervals(conn, self._identity, [topic for topic in topics if topic not in present], head)
        self._make_cursor(tx)
        version = announce_topics(conn)
        if topics.keys() != present.keys():
            select_anew(conn, version, [self._identity])
        made = find_subscriber(conn, self._identity)
        assert made is not None
        return made

    def _pass_intervals(self, conn: Connection) -> None:
        for cursor in read_cursors(conn, name=cursor_of(self._identity)):
            drop_intervals(conn, self._identity, cursor.position)

    def _row(self, before: SubscriberRow | None, now: int) -> SubscriberRow:
        old = before or SubscriberRow(self._identity, "", "", TIMEOUT_MS, MAX_EVENTS, created_at=now)
        wanted = self._wanted
        return old._replace(
            callback=wanted.callback,
            uuid=wanted.uuid,
            timeout_ms=old.timeout_ms if wanted.timeout_ms is None else wanted.timeout_ms,
            max_events=old.max_events if wanted.max_events is None else wanted.max_events,
            updated_at=now,
        )

    def _make_cursor(self, tx: Transaction) -> None:
        topic = find_topic(tx.conn, ROUTEMASTER) or create_topic(tx, self._config, self._random)
        name = cursor_of(self._identity)
        create_cursor(tx.conn, name, kind=CALLBACK, topic_id=topic.id, position=tx.head.last, now=tx.now, hold=HOLD)
        clear_failures(tx.conn, [name], tx.now)  # a client that subscribes again is there again


class DeleteSubscriber(ChangeUnit[None]):
    """End the subscription of a client to all its topics, and drop the events that wait for it.

    Raises `SubscriberNotFound`.
    """

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def make(self, tx: Transaction) -> None:
        if find_subscriber(tx.conn, self._identity) is None:
            raise SubscriberNotFound
        end_subscription(tx.conn, self._identity)
        announce_topics(tx.conn)


def end_subscription(conn: Connection, identity: str) -> None:
    """Delete a subscriber, if the client is one, with its cursor and waiting events. The head must be locked."""
    delete_subscriber(conn, identity)
    name = cursor_of(identity)
    prefix = resend_prefix(SUBSCRIBER + identity)
    resends = [one.name for one in read_cursors(conn, RESEND) if one.name.startswith(prefix)]
    delete_cursors(conn, [name, *resends])
    for one in (name, *resends):
        forget_attempts(conn, one)


class LeaveTopic(ChangeUnit[None]):
    """End the subscription of a client to one topic; events that wait already are still delivered.

    Raises `SubscriberNotFound`, `RmTopicNotFound`, `NotSubscribed`, in this order.
    """

    def __init__(self, identity: str, topic: str) -> None:
        self._identity = identity
        self._topic = topic

    def make(self, tx: Transaction) -> None:
        subscriber = find_subscriber(tx.conn, self._identity)
        if subscriber is None:
            raise SubscriberNotFound
        if find_rm_topic(tx.conn, self._topic) is None:
            raise RmTopicNotFound(self._topic)
        if self._topic not in subscriber.topics:
            raise NotSubscribed(self._topic)
        close_intervals(tx.conn, tx.head.last, topic=self._topic, identity=self._identity)
        select_anew(tx.conn, announce_topics(tx.conn), [self._identity])


class DeleteRmTopic(ChangeUnit[None]):
    """Delete a topic with its claim, its count and the subscriptions to it.

    Events that wait already are still delivered. `identity`: the client that asks, which must be the publisher, or a
    subscriber of a topic without one; None: the administrator. Raises `RmTopicNotFound` and `TopicClaimed`.
    """

    def __init__(self, topic: str, identity: str | None) -> None:
        self._topic = topic
        self._identity = identity

    def make(self, tx: Transaction) -> None:
        topic = find_rm_topic(tx.conn, self._topic)
        if topic is None:
            raise RmTopicNotFound(self._topic)
        if self._identity is not None and topic.publisher != self._identity:
            subscriber = None if topic.publisher else find_subscriber(tx.conn, self._identity)
            if subscriber is None or topic.name not in subscriber.topics:
                raise TopicClaimed(topic.name)
        delete_rm_topic(tx.conn, topic.name)
        subscribed = subscribers_of(tx.conn, topic.name)
        close_intervals(tx.conn, tx.head.last, topic=topic.name)
        select_anew(tx.conn, announce_topics(tx.conn), subscribed)


class ClaimTopic(ChangeUnit[RmTopicRow]):
    """Hand the claim of a topic over to an identity, or release it (`publisher` empty). Result: the topic's row.

    Raises `RmTopicNotFound`.
    """

    def __init__(self, topic: str, publisher: str) -> None:
        self._topic = topic
        self._publisher = publisher

    def make(self, tx: Transaction) -> RmTopicRow:
        set_publisher(tx.conn, self._topic, self._publisher)
        topic = find_rm_topic(tx.conn, self._topic)
        if topic is None:
            raise RmTopicNotFound(self._topic)
        return topic
