"""The configuration of groups, their keys and their peers: comparable values with every default filled in.

A node restarts only those of its tasks whose values differ after a change. Plugins' proposals have no part in this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eventd.resources.kinds.event_group import AuthKey, EventGroupSpec, Listen
from eventd.resources.kinds.event_peer import EventPeerSpec, PeerTls
from eventd.resources.kinds.history_keys import public_key
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER
from eventd.resources.validation.resource import specs_of
from eventd.runtime.backoff import Backoff
from eventd.store.rows.registry import StoredResource
from eventd.text.duration import SECOND
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig, ServerTlsConfig
from federation.peers import ANY
from federation.selector import Selector


@dataclass(frozen=True, slots=True)
class KeyConfig:
    """One key of a group. `owner` is the node that signs with it, `*` for a key of all members.

    `speaks_for`: the nodes whose events may be sent with the key; None for all but this node. `secret_file` and
    `public_key_file` are an absolute path, `credential:NAME`, or empty.
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
    """The address and TCP port on which this node listens for its peers; `tls` is None for plain HTTP."""

    address: str
    port: int
    tls: ServerTlsConfig | None = None


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """How many events of a group are kept; None: no limit.

    `max_age` in microseconds. A group whose events have `max_bytes` bytes refuses new events. `keep_undelivered`: this
    node's live events waiting for peers are not evicted. `ids`: how many microseconds the id of an evicted event is
    known.
    """

    max_events: int | None
    max_age: int | None
    max_bytes: int | None
    keep_undelivered: bool
    ids: int

    @property
    def is_bounded(self) -> bool:
        """Return whether events are evicted for their number or age."""
        return self.max_events is not None or self.max_age is not None


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits of what peers may send, and of the size of every event, also one emitted here. `…_bytes` in bytes."""

    max_event_bytes: int
    max_batch_bytes: int
    max_batch_events: int
    max_hops: int
    max_waiting_bytes: int


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """A peer to send to. `name` is the name of its EventPeer, `node_name` the peer's name in the group."""

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
    tls: ClientTlsConfig = SYSTEM_CAS
    console: str = ""
    """The URL of the peer's console; empty if none is declared."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group that this node is a member of.

    `replay_window` in microseconds; `secret_file` is empty if there is none. `listen` is None if this node only sends.
    `peers` are by the name of their EventPeer. `shares_links`: whether members that ask get the state of its links.
    `keeps_history`: whether this node keeps a Merkle tree of what it admits, and signs checkpoints of it. The hashes of
    events in it take up to `history_max_bytes`. `verifies_history`: whether it also compares events of other nodes with
    the trees of those nodes.
    """

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
    shares_links: bool = True
    keeps_history: bool = False
    verifies_history: bool = False
    history_max_bytes: int = 1 << 30
    history_pins: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    """The declared keys of the histories of other nodes, by node and kind (`log`, `witness`)."""

    @property
    def history_mode(self) -> str:
        """The mode of the history, as declared."""
        return "verify" if self.verifies_history else "record" if self.keeps_history else "off"

    def peer_nodes(self) -> set[str]:
        """Return the names of the nodes that are declared as peers."""
        return {peer.node_name for peer in self.peers.values()}

    def relays(self, node: str) -> bool:
        """Return whether this node passes on to other peers what a node admits."""
        return any(peer.relay and peer.node_name != node for peer in self.peers.values())

    def same_but_peers(self, other: GroupConfig) -> bool:
        """Return whether both are equal apart from their peers."""
        return replace(self, peers={}) == replace(other, peers={})


def topic_of(group: str) -> str:
    """Return the name of a group's topic."""
    return f"group:{group}"


def effective(stored: Iterable[StoredResource]) -> dict[str, GroupConfig]:
    """Return the configuration of each declared group, by name. Raises Invalid for a row this program cannot read.

    A peer whose group is missing is left out.
    """
    rows = list(stored)
    groups, peers = specs_of(rows, EVENT_GROUP, EventGroupSpec), specs_of(rows, EVENT_PEER, EventPeerSpec)
    return {name: _group(name, spec, peers) for name, spec in groups.items()}


def group_of(name: str, spec: EventGroupSpec) -> GroupConfig:
    """Return the configuration of one group without its peers."""
    return _group(name, spec, {})


def _group(name: str, spec: EventGroupSpec, peers: Mapping[str, EventPeerSpec]) -> GroupConfig:
    mine = {peer: of for peer, of in peers.items() if of.group_ref == name}
    return GroupConfig(
        name=name,
        node_name=spec.node_name,
        protocols=frozenset(spec.protocols),
        listen=_listen(spec.listen) if spec.listen.address else None,
        replay_window=spec.replay_window,
        secret_file=spec.auth.secret_file,
        keys=tuple(_key(key) for key in spec.auth.keys),
        retention=_retention(spec),
        limits=_limits(spec),
        peers={peer: peer_of(peer, of, spec.protocols) for peer, of in mine.items()},
        shares_links=spec.status.share == "links",
        keeps_history=spec.history.mode != "off",
        verifies_history=spec.history.mode == "verify",
        history_max_bytes=spec.history.max_bytes,
        history_pins=_pins(spec, mine.values()),
    )


def _pins(spec: EventGroupSpec, peers: Iterable[EventPeerSpec]) -> dict[tuple[str, str], bytes]:
    pins = dict[tuple[str, str], bytes]()
    for peer in peers:
        pins |= pins_of(peer)
    for keys in spec.history.keys:
        pins |= _declared_keys(keys.node, keys.log_key, keys.witness_key)
    return pins


def pins_of(peer: EventPeerSpec) -> dict[tuple[str, str], bytes]:
    """Return the keys of the history of a peer that are declared with it, by node and kind."""
    return _declared_keys(peer.node_name, peer.history.log_key, peer.history.witness_key)


def _declared_keys(node: str, log_key: str, witness_key: str) -> dict[tuple[str, str], bytes]:
    declared = {"log": log_key, "witness": witness_key}
    return {(node, kind): public_key(text) for kind, text in declared.items() if text}


def _listen(spec: Listen) -> ListenConfig:
    tls = spec.tls
    declared = (
        ServerTlsConfig(tls.cert_file, tls.key_file, tls.client_ca_file, tls.min_version) if tls.cert_file else None
    )
    return ListenConfig(spec.address, spec.port, declared)


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


def peer_of(name: str, spec: EventPeerSpec, protocols: Sequence[str]) -> PeerConfig:
    """Return the configuration of one peer, whose group speaks these protocols."""
    retry = spec.retry
    return PeerConfig(
        name=name,
        group=spec.group_ref,
        node_name=spec.node_name,
        endpoint=spec.endpoint,
        protocol=_protocol(spec, protocols),
        relay=spec.relay,
        selector=Selector.of(types=spec.types, subject_prefixes=spec.subject_prefixes),
        in_flight=spec.limits.in_flight,
        batch_events=spec.limits.batch_events,
        batch_bytes=spec.limits.batch_bytes,
        timeout=spec.limits.timeout / SECOND,
        backoff=Backoff(base=retry.base_backoff / SECOND, cap=retry.max_backoff / SECOND),
        tls=_connect(spec.tls),
        console=spec.console,
    )


def _connect(spec: PeerTls) -> ClientTlsConfig:
    return ClientTlsConfig(spec.ca_file, spec.cert_file, spec.key_file, spec.server_name, frozenset(spec.pins))


def _protocol(spec: EventPeerSpec, protocols: Sequence[str]) -> str:
    """Return the protocol for the peer: `auto` only if that is declared and the group speaks more than one
    protocol."""
    if spec.protocol == "auto" and len(protocols) == 1:
        return protocols[0]
    return spec.protocol
