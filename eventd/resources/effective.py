"""What a node runs on: the declared resources with every default filled in, as plain values that can be compared.

Two configurations that are equal need nothing done; where they differ, the parts that are equal stay untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eventd.backoff import Backoff
from eventd.resources.duration import SECOND
from eventd.resources.event_group import AuthKey, EventGroupSpec
from eventd.resources.event_peer import EventPeerSpec
from eventd.resources.resource import from_stored
from eventd.store.registry import StoredResource
from federation.peers import ANY
from federation.selector import Selector


@dataclass(frozen=True, slots=True)
class KeyConfig:
    """One key of the ring.

    `owner` is `*` for a key all members share, `speaks_for` None where it may speak for every other node. A file is
    an absolute path, `credential:NAME`, or blank.
    """

    id: str
    owner: str
    algorithm: str
    state: str
    secret_file: str
    public_key_file: str
    speaks_for: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where peers reach the node."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """What is kept. Ages in microseconds, sizes in bytes; None is no bound."""

    max_events: int | None
    max_age: int | None
    max_bytes: int | None
    keep_undelivered: bool
    ids: int


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What is taken from others, in bytes and counts."""

    max_event_bytes: int
    max_batch_bytes: int
    max_batch_events: int
    max_hops: int
    max_waiting_bytes: int


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """A peer to send to. `name` is the resource's, `node_name` the node's."""

    name: str
    group: str
    node_name: str
    endpoint: str
    protocol: str
    relay: bool
    selector: Selector
    in_flight: int
    batch_events: int
    batch_bytes: int
    timeout: float
    """Seconds."""
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group this node takes part in. `replay_window` in microseconds; `secret_file` is blank when there is none."""

    name: str
    node_name: str
    protocols: frozenset[str]
    listen: ListenConfig | None
    replay_window: int
    secret_file: str
    keys: tuple[KeyConfig, ...]
    retention: RetentionConfig
    limits: LimitsConfig
    peers: Mapping[str, PeerConfig] = field(default_factory=dict)

    def same_but_peers(self, other: GroupConfig) -> bool:
        """Whether nothing but peers differs."""
        return replace(self, peers={}) == replace(other, peers={})


def topic_of(group: str) -> str:
    """The name of the topic a group owns."""
    return f"group:{group}"


def effective(stored: Iterable[StoredResource]) -> dict[str, GroupConfig]:
    """The groups by name, each with its peers by resource name.

    Raises Invalid for a row this program cannot read. A peer whose group is missing is left out.
    """
    groups: dict[str, EventGroupSpec] = {}
    peers: dict[str, EventPeerSpec] = {}
    for resource in map(from_stored, stored):
        if isinstance(resource.spec, EventGroupSpec):
            groups[resource.name] = resource.spec
        elif isinstance(resource.spec, EventPeerSpec):
            peers[resource.name] = resource.spec
    return {name: _group(name, spec, peers) for name, spec in groups.items()}


def _group(name: str, spec: EventGroupSpec, peers: Mapping[str, EventPeerSpec]) -> GroupConfig:
    return GroupConfig(
        name=name,
        node_name=spec.node_name,
        protocols=frozenset(spec.protocols),
        listen=ListenConfig(spec.listen.address, spec.listen.port) if spec.listen.address else None,
        replay_window=spec.replay_window,
        secret_file=spec.auth.secret_file,
        keys=tuple(_key(key) for key in spec.auth.keys),
        retention=_retention(spec),
        limits=_limits(spec),
        peers={peer: _peer(peer, of, spec) for peer, of in peers.items() if of.group_ref == name},
    )


def _key(key: AuthKey) -> KeyConfig:
    speaks_for = key.speaks_for or (key.owner,)
    return KeyConfig(
        id=key.id,
        owner=key.owner,
        algorithm=key.algorithm,
        state=key.state,
        secret_file=key.secret_file,
        public_key_file=key.public_key_file,
        speaks_for=None if ANY in speaks_for else frozenset(speaks_for),
    )


def _retention(spec: EventGroupSpec) -> RetentionConfig:
    retention = spec.retention
    return RetentionConfig(
        max_events=retention.max_events or None,
        max_age=retention.max_age or None,
        max_bytes=retention.max_bytes or None,
        keep_undelivered=retention.undelivered == "keep",
        ids=max(retention.ids, spec.replay_window),
    )


def _limits(spec: EventGroupSpec) -> LimitsConfig:
    limits = spec.limits
    return LimitsConfig(
        max_event_bytes=limits.max_event_bytes,
        max_batch_bytes=limits.max_batch_bytes,
        max_batch_events=limits.max_batch_events,
        max_hops=limits.max_hops,
        max_waiting_bytes=limits.max_waiting_bytes,
    )


def _peer(name: str, spec: EventPeerSpec, group: EventGroupSpec) -> PeerConfig:
    retry = spec.retry
    return PeerConfig(
        name=name,
        group=spec.group_ref,
        node_name=spec.node_name,
        endpoint=spec.endpoint,
        protocol=_protocol(spec, group),
        relay=spec.relay,
        selector=Selector.of(types=spec.types, subject_prefixes=spec.subject_prefixes),
        in_flight=spec.limits.in_flight,
        batch_events=spec.limits.batch_events,
        batch_bytes=spec.limits.batch_bytes,
        timeout=spec.limits.timeout / SECOND,
        backoff=Backoff(base=retry.base_backoff / SECOND, cap=retry.max_backoff / SECOND),
    )


def _protocol(spec: EventPeerSpec, group: EventGroupSpec) -> str:
    """Nothing is to be found out where the group speaks one protocol only."""
    if spec.protocol == "auto" and len(group.protocols) == 1:
        return group.protocols[0]
    return spec.protocol
