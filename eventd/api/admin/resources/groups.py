"""The declared group of a request, and the status of all groups."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from eventd.api.framework.operations import Params, Services
from eventd.egress.cursors import link_name
from eventd.groups.lookup import find_group, peers_of
from eventd.groups.retention import limits_of
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.topic_row import TopicRow, ensure_topic, read_group_topics
from eventd.log.cursors.cursors import LinkState, read_shown_states
from eventd.log.retention.waiting import RetentionWaits
from eventd.resources.group_configuration import GroupConfig, effective, topic_of
from eventd.resources.kinds.registry import EVENT_GROUP
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import read_resources, read_version


class EmitTarget(NamedTuple):
    """A declared group, the id of its topic, and the version of the declared resources for which both were read."""

    group: GroupConfig
    topic: int
    version: int


class AppliedState(NamedTuple):
    """All groups as declared at a version of the resources, and the targets of those that have a topic."""

    version: int
    groups: dict[str, GroupConfig]
    targets: dict[str, EmitTarget]


_NOTHING = AppliedState(0, {}, {})
_declared: WeakKeyDictionary[Database, AppliedState] = WeakKeyDictionary()


def recall_target(database: Database, name: str) -> EmitTarget | None:
    """Return the target of a group as this process last read it; None if it has not read one.

    It may be outdated: the caller must let the writer verify it.
    """
    return _declared.get(database, _NOTHING).targets.get(name)


async def find_target(database: Database, name: str, now: int) -> EmitTarget:
    """Return the group and its topic, which is created if missing. Raises NotFound if no such group is declared.

    While the version of the declared resources lasts, calls return the same object. Only a call during which it
    changes, or one of several simultaneous first calls, may return another: a caller that compares by identity retries.
    """
    known = _declared.get(database, _NOTHING)
    version = await database.read(read_version)
    if version != known.version:
        # Only committed data may be remembered: a version that was rolled back is assigned again, to other content.
        known = _declared[database] = await database.read(_read_declared)
    if name not in known.targets:
        await database.read(find_group, name)
        made = await database.write(_make_target, name, now)
        return made if made.version != known.version else known.targets.setdefault(name, made)
    return known.targets[name]


def _read_declared(conn: Connection) -> AppliedState:
    version, topics = read_version(conn), {topic.name: topic.id for topic in read_group_topics(conn)}
    groups = effective(read_resources(conn))
    found = {name: (group, topics.get(topic_of(name))) for name, group in groups.items()}
    targets = {name: EmitTarget(group, topic, version) for name, (group, topic) in found.items() if topic is not None}
    return AppliedState(version, groups, targets)


def _make_target(conn: Connection, name: str, now: int) -> EmitTarget:
    """Return the group and its topic, which is created if missing. Raises NotFound."""
    head = lock_head(conn)  # otherwise the group could be deleted in between
    return EmitTarget(find_group(conn, name), ensure_topic(conn, topic_of(name), now), head.registry_version)


def count_events(conn: Connection) -> dict[str, int]:
    """Return the number of stored events of each declared group, by its name."""
    topics = {topic.name: topic.ids for topic in read_group_topics(conn)}
    return {row.name: topics.get(topic_of(row.name), 0) for row in read_resources(conn, EVENT_GROUP.name)}


class ShowStatus(Params):
    """No parameters. A key that is limited to prefixes gets its own groups."""

    narrows: ClassVar[bool] = True


async def show_status(services: Services, params: ShowStatus) -> dict[str, Any]:
    known = _declared.get(services.database, _NOTHING)
    now = services.clock.now()
    status, present = await services.database.read(_read_status, services, known, now)
    if present is not known:
        _declared[services.database] = present
    return status


def _read_status(
    conn: Connection, services: Services, known: AppliedState, now: int
) -> tuple[dict[str, Any], AppliedState]:
    """Return the status of all groups that the caller sees, as JSON, and the applied state: `known` if that is
    current, else as read now."""
    head = read_head(conn)
    topics = {topic.name: topic for topic in read_group_topics(conn)}
    links = read_shown_states(conn, "peer")
    known = known if known.version == head.registry_version else _read_declared(conn)
    groups = known.groups

    def status_of(name: str) -> dict[str, Any]:
        group, topic = groups[name], topics.get(topic_of(name))
        return _group(group, topic, links) | {"retentionWaits": read_waits(conn, services, group, topic, now)}

    status = {
        "epoch": head.epoch,
        "incarnation": head.incarnation,
        "position": head.last,
        "groups": [status_of(name) for name in sorted(filter(services.sees, groups))],
    }
    return status, known


def read_waits(
    conn: Connection, services: Services, group: GroupConfig, topic: TopicRow | None, now: int, *, shared: bool = True
) -> dict[str, int]:
    """Return how many events over the limits the group's retention keeps, by what it waits for; none without any.

    A shared answer may be that of another caller, up to a second old.
    """
    if topic is None or not group.retention.is_bounded:
        return {}
    waits = (services.retention_waits if shared else None) or RetentionWaits()
    return waits.read(conn, topic, limits_of(group.retention), now).waiting()


def _group(group: GroupConfig, topic: TopicRow | None, links: dict[str, LinkState]) -> dict[str, Any]:
    states: dict[str, int] = {}
    for peer in peers_of(group):
        state = str(links.get(link_name(group.name, peer.node_name), "new"))
        states[state] = states.get(state, 0) + 1
    return {
        "group": group.name,
        "nodeName": group.node_name,
        "listen": f"{group.listen.address}:{group.listen.port}" if group.listen else "",
        "protocols": sorted(group.protocols),
        "events": topic.ids if topic else 0,
        "bytes": topic.bytes if topic else 0,
        "seq": topic.next_seq - 1 if topic else 0,
        "evictedSeq": topic.evicted_seq if topic else 0,
        "peers": len(group.peers),
        "links": states,
    }
