"""Topics: create, configure, show, list and delete them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from eventd.api.framework.models import NoQuery, Query, ResponseModel
from eventd.api.framework.paging import NamePage, write_cursor
from eventd.api.keys.api_key import ApiKey
from eventd.api.topics.calls import V0, Call
from eventd.log.core.topic_config import TopicConfig, merged
from eventd.log.core.topic_row import find_topic
from eventd.log.topics.config_rules import require_valid
from eventd.log.topics.declared import ManagedBy, managed_by, managed_by_each
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.state import TopicState, list_states, read_state
from eventd.log.topics.topics import (
    NAME,
    DeleteTopic,
    PatchTopic,
    PutTopic,
    TopicPut,
    refuse_reserved,
    require_name,
)
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.rows.leases import JobCounts
from eventd.text.topic_names import TOPIC_KIND

TopicChanges: type[Struct] = msgspec.defstruct(
    "TopicChanges",
    [(field.encode_name, field.type | None | UnsetType, UNSET) for field in msgspec.structs.fields(TopicConfig)],
    kw_only=True,
    module=__name__,
)
"""A part of a topic's configuration: missing members stay unchanged, null resets one to its default."""


class TopicSet(ResponseModel):
    """A topic was created or configured; `config` is its whole configuration."""

    topic: str
    created: bool
    config: TopicConfig


class QueueState(Struct, kw_only=True):
    """The numbers of a queue's jobs: claimable, claimed, and dead letters so far."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicShown(ResponseModel):
    """The state of a topic. Times in milliseconds. `last_read_ts`: the last read in this process.

    `managed`: `declared` if a resource declares the topic, and alone changes and deletes it; otherwise `api`.
    """

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    managed: ManagedBy
    queue: QueueState | UnsetType = UNSET


class TopicListed(Struct, kw_only=True):
    """The state of a topic in short. `managed` as in `TopicShown`."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    managed: ManagedBy


class TopicList(ResponseModel):
    """Topics, ordered by the bytes of their names. `next_cursor` is present if there are more."""

    topics: list[TopicListed]
    next_cursor: str | UnsetType = UNSET


class TopicDeleted(ResponseModel):
    """Whether there was a topic to delete, and the routers deleted with it."""

    topic: str
    deleted: bool
    routers_removed: list[str]


class Touch(Query, frozen=True):
    """`touch`: whether the request counts as a read of the topic."""

    touch: bool = True


class TopicPage(NamePage, frozen=True):
    """Which topics to list. `touch`: whether this counts as a read of each."""

    touch: bool = False


class IfEmpty(Query, frozen=True):
    """`if_empty`: only a topic without records is deleted."""

    if_empty: bool = False


async def put(call: Call[NoQuery, TopicConfig]) -> TopicSet:
    """Create a topic, or replace its configuration."""
    refuse_reserved(call.name, "configured")
    require_name(call.name)
    require_config(call.body, call.name, call.key)
    unit = PutTopic(call.name, call.body, max_topics=call.v0.limits.max_topics, random=call.v0.log.chance.token(16))
    return _show_set(call, await call.v0.log.submit(unit))


async def patch(call: Call[NoQuery, Annotated[Any, TopicChanges]]) -> TopicSet:
    """Change a part of a topic's configuration."""
    refuse_reserved(call.name, "configured")
    require_possible_name(call.name)
    changes = {name: value for name in call.body.__struct_fields__ if (value := getattr(call.body, name)) is not UNSET}
    line = await call.v0.database.read(find_topic, call.name)
    if line is None:
        raise TopicNotFound(call.name)
    require_config(merged(line.config, changes), call.name, call.key)
    return _show_set(call, await call.v0.log.submit(PatchTopic(call.name, changes)))


def _show_set(call: Call[Any, Any], put: TopicPut) -> TopicSet:
    call.v0.topic_changed(put.line.id)
    return TopicSet(topic=call.name, created=put.created, config=put.line.config, performance=call.performance())


def require_config(config: TopicConfig, topic: str, key: ApiKey) -> None:
    """Raises `Invalid` for a configuration that is not allowed for a topic of this name.

    Raises `Forbidden` if its dead letters would go to a topic that the key may not access.
    """
    require_valid(config, topic)
    if config.dead_letter is not None:
        key.require_names(config.dead_letter)


def require_possible_name(name: str) -> None:
    """Raises `TopicNotFound` for a name that no topic can have; databases refuse some such names."""
    if not NAME.fullmatch(name):
        raise TopicNotFound(name)


async def show(call: Call[Touch, None]) -> TopicShown:
    """Show the state of a topic."""
    require_possible_name(call.name)
    v0, at = call.v0, Moment.of(call.v0.clock)
    await v0.catch_up(call.name)
    found = await v0.database.read(_read_shown, call.name, at)
    if found is None:
        raise TopicNotFound(call.name)
    state, managed = found
    if call.query.touch and call.key.may("read"):
        v0.recency.touch(state.line.id, at.wall)
    return _shown(v0, state, managed, at.wall, call)


def _read_shown(conn: Connection, name: str, at: Moment) -> tuple[TopicState, ManagedBy] | None:
    state = read_state(conn, name, at)
    return None if state is None else (state, managed_by(conn, TOPIC_KIND, name))


def _shown(v0: V0, state: TopicState, managed: ManagedBy, now: int, call: Call[Any, Any]) -> TopicShown:
    line, standing = state.line, state.standing
    read_ms = v0.recency.last_ms(line.id)
    return TopicShown(
        topic=line.name,
        type=line.config.type,
        head_seq=line.head_seq,
        earliest_seq=standing.earliest_seq,
        next_seq=line.next_seq,
        count=standing.count,
        bytes=standing.bytes,
        config=line.config,
        effective_priority=line.config.effective_priority(read_ms, now // 1000),
        last_write_ts=None if line.written_at is None else line.written_at // 1000,
        last_read_ts=read_ms,
        managed=managed,
        queue=UNSET if state.jobs is None else _queue(state.jobs),
        performance=call.performance(),
    )


def _queue(jobs: JobCounts) -> QueueState:
    return QueueState(ready=jobs.ready, in_flight=jobs.in_flight, dead_lettered=jobs.dead_lettered)


async def list_topics(call: Call[TopicPage, None]) -> TopicList:
    """List the topics that the key may access, including those of groups."""
    v0, query, at = call.v0, call.query, Moment.of(call.v0.clock)
    after, states, more = query.after, list[TopicState](), False
    if not query.prefix or NAME.fullmatch(query.prefix):
        states, more = await v0.database.read(
            list_states,
            prefixes=call.key.prefixes,
            prefix=query.prefix,
            after=after,
            limit=query.limit,
            at=at,
        )
    if query.touch and call.key.may("read"):
        for state in states:
            v0.recency.touch(state.line.id, at.wall)
    managed = await v0.database.read(managed_by_each, TOPIC_KIND, [state.line.name for state in states])
    listed = [_listed(v0, state, managed[state.line.name], at.wall) for state in states]
    cursor = write_cursor(listed[-1].topic) if more else UNSET
    return TopicList(topics=listed, next_cursor=cursor, performance=call.performance())


def _listed(v0: V0, state: TopicState, managed: ManagedBy, now: int) -> TopicListed:
    line, standing = state.line, state.standing
    return TopicListed(
        topic=line.name,
        head_seq=line.head_seq,
        earliest_seq=standing.earliest_seq,
        count=standing.count,
        bytes=standing.bytes,
        durable=line.config.durable,
        effective_priority=line.config.effective_priority(v0.recency.last_ms(line.id), now // 1000),
        managed=managed,
    )


async def delete(call: Call[IfEmpty, None]) -> TopicDeleted:
    """Delete a topic with its records, and every router that reads or writes it."""
    refuse_reserved(call.name, "deleted")
    done = None
    if NAME.fullmatch(call.name):
        done = await call.v0.log.submit(DeleteTopic(call.name, if_empty=call.query.if_empty))
    if done is not None:
        call.v0.log.wakeups.touch(done.topic_id)
        call.v0.routing.removed(done.routers_removed, done.version)
    routers, performance = done.routers_removed if done else [], call.performance()
    return TopicDeleted(topic=call.name, deleted=done is not None, routers_removed=routers, performance=performance)
