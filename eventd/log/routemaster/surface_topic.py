"""The topic of the log that holds all events of the surface, one record each, in the order in which they arrived."""

from __future__ import annotations

from typing import Final, Literal

from eventd.errors import SettingsError
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.head import announce_topics
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import TopicRow, find_topic, insert_topic
from eventd.log.topics.topics import ROUTEMASTER, set_config

TTL_MS: Final = 7 * 86_400_000
"""How long events are kept for a replay."""


def surface_topic_config(*, cap_bytes: int = 0, discard: Literal["old", "reject"] = "reject") -> TopicConfig:
    """Return the configuration of the topic. `cap_bytes`: maximum bytes of its records; 0: unlimited."""
    return TopicConfig(ttl_ms=TTL_MS, cap_bytes=cap_bytes, discard=discard, durability="fsync").resolved()


class OpenTopic(ChangeUnit[TopicRow]):
    """Create the topic, or set its configuration. Raises `SettingsError` if a queue has its name."""

    def __init__(self, config: TopicConfig, *, random: bytes) -> None:
        self._config = config
        self._random = random

    def make(self, tx: Transaction) -> TopicRow:
        topic = find_topic(tx.conn, ROUTEMASTER)
        if topic is None:
            return create_topic(tx, self._config, self._random)
        if topic.is_queue or topic.of_group:
            raise SettingsError(
                f"the topic {ROUTEMASTER!r} is a queue, and the Routemaster surface needs this name",
                hint="start the node with an earlier release to read it, or leave EVENTD_ROUTEMASTER_LISTEN unset",
            )
        return set_config(tx, topic, self._config)


def create_topic(tx: Transaction, config: TopicConfig, random: bytes) -> TopicRow:
    """Create the topic, which must not exist yet. The maximum number of topics does not apply to it."""
    topic = insert_topic(tx.conn, ROUTEMASTER, config, now=tx.now, random=random)
    announce_topics(tx.conn)
    return topic
