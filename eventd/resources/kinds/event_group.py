"""EventGroup: a group that this node is a member of, with the node's name and address in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from eventd.resources.kinds.fields import (
    Address,
    Duration,
    KeyId,
    NodeName,
    SecretPath,
    Size,
    Whole,
    check_node_name,
    duration_between,
    size_between,
)
from eventd.resources.kinds.history_keys import HistoryKeys
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.text.duration import HOUR, LONGEST
from eventd.text.size import GIB, KIB, LARGEST, MIB
from federation.peers import ANY, DEFAULT_WINDOW, PROTOCOL_V1, PROTOCOL_V2, SHARED_KEY_ID


def _known_protocols(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise wrong("must name at least one of v1 and v2")
    return tuple(sorted(set(values)))


def _star(value: Any) -> Any:
    return [ANY] if value == ANY else value


def _unstar(value: tuple[str, ...]) -> str | list[str]:
    return ANY if value == (ANY,) else list(value)


def _node_or_any(value: str) -> str:
    return value if value == ANY else check_node_name(value)


def _window(value: int) -> int:
    return value if value > 0 else DEFAULT_WINDOW


def _some(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise wrong("must name at least one node", "leave it out to mean the owner")
    if ANY in values and len(values) > 1:
        raise wrong("must be either * or a list of nodes")
    return values


def _owner_or_node(schema: dict[str, Any]) -> None:
    """Add `node`, the alias of `owner`, to the schema of a key, for editors; one of the two is required."""
    properties = schema["properties"]
    properties["node"] = properties["owner"] | {"description": "An alias of owner."}
    schema["required"].remove("owner")
    schema["anyOf"] = [{"required": ["owner"]}, {"required": ["node"]}]


class Retention(Spec):
    """How much of the group's events this node keeps."""

    max_events: Annotated[Whole, Field(ge=0, le=LARGEST)] = Field(
        default=0, description="Maximum number of events to keep; 0: no limit."
    )
    max_age: Annotated[Duration, AfterValidator(lambda value: max(value, 0))] = Field(
        default=0,
        description="Age after which events are evicted, counted from when they were recorded; 0 or less: never.",
    )
    undelivered: Literal["keep", "drop"] = Field(
        default="keep",
        description="Whether this node's live events are kept (`keep`) or evicted while they wait for a peer.",
    )
    max_bytes: Annotated[Size, size_between(0, LARGEST)] = Field(
        default=0, description="New events are refused while the group holds this many bytes; 0: no limit."
    )
    ids: Annotated[Duration, duration_between(0, LONGEST)] = Field(
        default=24 * HOUR,
        description="How long the id of an evicted event is recognised; never less than the replay window.",
    )

    def lowered_in(self, after: Retention) -> list[str]:
        """Return the fields, under their names in a spec, by which `after` evicts events that this one keeps."""
        limits = {"maxEvents": (self.max_events, after.max_events), "maxAge": (self.max_age, after.max_age)}
        lowered = [name for name, (before, now) in limits.items() if now > 0 and (not before or now < before)]
        return [*lowered, *(["undelivered"] if (self.undelivered, after.undelivered) == ("keep", "drop") else [])]


class AuthKey(Spec):
    """One key of the group: the node that signs with it, and what it may be used for."""

    id: KeyId = Field(description="The key's name, the same on every node that has it.")
    owner: Annotated[str, AfterValidator(_node_or_any)] = Field(
        validation_alias=AliasChoices("owner", "node"),
        serialization_alias="owner",
        description="The node that signs with the key; `*` means all members. `node` is an alias of this field.",
    )
    algorithm: Literal["hmac-sha256", "ed25519"] = Field(default="hmac-sha256", description="The signature algorithm.")
    state: Literal["pending", "active", "retiring", "revoked"] = Field(
        default="active",
        description="pending and retiring keys only verify, an active key also signs, a revoked key is refused.",
    )
    secret_file: SecretPath = Field(
        default="", description="The file of the shared secret, or of this node's own private key."
    )
    public_key_file: SecretPath = Field(default="", description="The file of another node's public key (ed25519).")
    speaks_for: (
        Annotated[
            tuple[Annotated[str, AfterValidator(_node_or_any)], ...],
            AfterValidator(_some),
            BeforeValidator(_star),
            PlainSerializer(_unstar),
            WithJsonSchema({"anyOf": [{"const": ANY}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}),
        ]
        | None
    ) = Field(
        default=None,
        description="The nodes whose events may be sent with the key; absent: its owner; `*`: every node but this one.",
    )

    model_config = ConfigDict(json_schema_extra=_owner_or_node)

    @model_validator(mode="before")
    @classmethod
    def _one_owner(cls, data: Any) -> Any:
        if isinstance(data, dict) and "owner" in data and "node" in data:
            raise wrong("owner and node are two names of one field", "leave node out")
        return data

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for files that the algorithm demands or forbids, and for an ed25519 key of `*`."""
        if self.algorithm == "hmac-sha256" and self.public_key_file:
            yield Finding(("publicKeyFile",), "an hmac-sha256 key has no public half", "write secretFile")
        elif self.secret_file and self.public_key_file:
            yield Finding(("publicKeyFile",), "only one of secretFile and publicKeyFile can be given")
        elif self.algorithm == "hmac-sha256" and not self.secret_file:
            yield Finding(("secretFile",), "is required for an hmac-sha256 key")
        if self.algorithm == "ed25519" and self.owner == ANY:
            yield Finding(("owner",), "an ed25519 key belongs to one node, not to all")


class Auth(Spec):
    """The keys that prove that a message comes from a member of the group."""

    refused: ClassVar[Mapping[str, Finding]] = {
        "secretRef": Finding((), "is not supported and would be ignored", "write auth.secretFile"),
    }

    mode: Annotated[Literal["", "hmac"], AfterValidator(lambda value: value or "hmac")] = Field(
        default="hmac", description="Only hmac; empty means the same."
    )
    secret_file: SecretPath = Field(
        default="",
        description="The file of the secret that all members share, or `credential:NAME`.",
    )
    keys: tuple[AuthKey, ...] = Field(
        default=(), description="The keys for v2, one or more for each member; those with hmac-sha256 also for v1."
    )

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for reserved and repeated key ids, and for a second active key of one owner and algorithm."""
        for at, key in enumerate(self.keys):
            if self.secret_file and key.id == SHARED_KEY_ID:
                yield Finding(("keys", at, "id"), f"the key id {SHARED_KEY_ID} belongs to auth.secretFile")
        first: dict[str, int] = {}
        active: dict[tuple[str, str], str] = {}
        for at, key in enumerate(self.keys):
            if first.setdefault(key.id, at) != at:
                yield Finding(("keys", at, "id"), f"the key id {key.id} is used twice, first in keys[{first[key.id]}]")
            signer = active.setdefault((key.owner, key.algorithm), key.id) if key.state == "active" else key.id
            if signer != key.id:
                whose = "the group" if key.owner == ANY else key.owner
                message = f"{whose} already has the active {key.algorithm} key {signer}"
                yield Finding(("keys", at, "state"), message, "make one of them pending or retiring")


class ListenTls(Spec):
    """How the listener speaks TLS."""

    cert_file: SecretPath = Field(
        default="", description="PEM file of the certificate, followed by those of its issuers; absent: no TLS."
    )
    key_file: SecretPath = Field(default="", description="PEM file of its private key, which others may not read.")
    client_ca_file: SecretPath = Field(
        default="",
        description="PEM file of CAs: peers must show a certificate that one of them issued, or that is in the file,"
        " and that names the node.",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Lowest version of TLS.")

    def findings(self) -> Iterator[Finding]:
        """Require certificate and key together."""
        if self.cert_file and not self.key_file:
            yield Finding(("keyFile",), "is required with certFile", "write the path of the certificate's private key")
        if not self.cert_file and (self.key_file or self.client_ca_file):
            yield Finding(("certFile",), "is required for TLS", "write the path of the listener's certificate")


class Listen(Spec):
    """The address and port on which this node listens for its peers, and whether over TLS."""

    address: Address = Field(
        default="", description="IP address or host name to listen on; absent: this node only sends."
    )
    port: Annotated[Whole, Field(ge=0, le=65535)] = Field(default=0, description="TCP port, 1 to 65535; 0: absent.")
    tls: ListenTls = Field(default_factory=ListenTls, description="Serve TLS; absent: plain HTTP.")

    def findings(self) -> Iterator[Finding]:
        """Require address and port together: a port alone would listen on every interface."""
        if self.address and not self.port:
            yield Finding(("port",), "is required when an address is set", "write a port between 1 and 65535")
        if self.port and not self.address:
            yield Finding(("address",), "is required when a port is set", "write 0.0.0.0 to listen on every interface")


class GroupLimits(Spec):
    """Limits of what this node accepts from other nodes; maxEventBytes also limits events emitted here."""

    max_event_bytes: Annotated[Size, size_between(KIB, 64 * MIB)] = Field(
        default=MIB, description="The largest event in bytes."
    )
    max_batch_bytes: Annotated[Size, size_between(KIB, GIB)] = Field(
        default=8 * MIB, description="The largest v2 batch in bytes."
    )
    max_batch_events: Annotated[Whole, Field(ge=1, le=100_000)] = Field(
        default=10_000, description="Maximum number of events in a batch."
    )
    max_hops: Annotated[Whole, Field(ge=1, le=64)] = Field(
        default=8, description="Maximum number of nodes that an event may have come through, its sender included."
    )
    max_waiting_bytes: Annotated[Size, size_between(KIB, 16 * GIB)] = Field(
        default=64 * MIB,
        description="Maximum bytes of batches, from all senders together, that wait in memory for a preceding batch.",
    )

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for a batch limit below the event limit, and for a limit of waiting batches below it."""
        if self.max_batch_bytes < self.max_event_bytes:
            yield Finding(("maxBatchBytes",), "must not be less than maxEventBytes: the largest event would never fit")
        if self.max_waiting_bytes < self.max_batch_bytes:
            yield Finding(("maxWaitingBytes",), "must not be less than maxBatchBytes: the largest batch could not wait")


class StatusSharing(Spec):
    """What this node reports to the group's members about its links, for their maps."""

    share: Literal["links", "none"] = Field(
        default="links",
        description="links: names, states, lags and rates of its links in this group, to members that ask; none:"
        " nothing.",
    )


class History(Spec):
    """The verifiable history of what this node admits to the group."""

    mode: Literal["verify", "record", "off"] = Field(
        default="record",
        description="record: this node keeps a Merkle tree of the events that enter the group here, and signs"
        " checkpoints of it; verify: it also compares the events of other nodes with the trees of those nodes; off: it"
        " does neither, and ends a tree that it has kept.",
    )
    max_bytes: Annotated[Size, size_between(0, LARGEST)] = Field(
        default=1 << 30,
        description="How many bytes of hashes of events are kept: 34 for each event; the oldest are deleted first, and"
        " these events cannot be proven from this node any more.",
    )
    keys: tuple[HistoryKeys, ...] = Field(
        default=(),
        description="Keys of other nodes, which count more than those that they show; another one is refused.",
    )

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for a node that is listed twice."""
        first: dict[str, int] = {}
        for at, key in enumerate(self.keys):
            if first.setdefault(key.node, at) != at:
                yield Finding(("keys", at, "node"), f"{key.node} is listed twice, first in keys[{first[key.node]}]")


class EventGroupSpec(Spec):
    """The spec of an EventGroup."""

    refused: ClassVar[Mapping[str, Finding]] = {
        "peersFrom": Finding((), "is not supported yet", "declare each peer as an EventPeer"),
        "when": Finding((), "is not supported yet", "leave it out until it is supported"),
    }

    node_name: NodeName = Field(
        description="This node's name in the group, which becomes the source of events emitted here."
    )
    listen: Listen = Field(
        default_factory=Listen, description="The address and port on which this node listens for peers."
    )
    auth: Auth = Field(default_factory=Auth, description="The keys that prove membership.")
    protocols: Annotated[tuple[Literal["v1", "v2"], ...], AfterValidator(_known_protocols)] = Field(
        default=(PROTOCOL_V1, PROTOCOL_V2), description="The protocols spoken in this group."
    )
    replay_window: Annotated[Duration, AfterValidator(_window)] = Field(
        default=DEFAULT_WINDOW,
        description="How far a message's time may differ from this node's clock; 0 or less: the default, 5m.",
    )
    retention: Retention = Field(default_factory=Retention, description="How many events are kept.")
    limits: GroupLimits = Field(default_factory=GroupLimits, description="Limits of what is accepted from other nodes.")
    history: History = Field(default_factory=History, description="The verifiable history of what this node admits.")
    status: StatusSharing = Field(default_factory=StatusSharing, description="What this node reports about its links.")

    def findings(self) -> Iterator[Finding]:
        """Yield the problems of keys that depend on whether a key is this node's own."""
        for at, key in enumerate(self.auth.keys):
            for finding in self._key_findings(key):
                yield Finding(("auth", "keys", at, *finding.path), finding.message, finding.hint)

    def _key_findings(self, key: AuthKey) -> Iterator[Finding]:
        own = key.owner in (self.node_name, ANY)
        if key.algorithm == "ed25519" and own and not key.secret_file:
            yield Finding(("secretFile",), "is required: this node signs with its own private key")
        if key.algorithm == "ed25519" and not own and key.secret_file:
            yield Finding(
                ("secretFile",),
                f"is the private key of {key.owner}: it must not be on this node",
                "write publicKeyFile",
            )
        elif key.algorithm == "ed25519" and not own and not key.public_key_file:
            yield Finding(("publicKeyFile",), f"is required to verify the signatures of {key.owner}")
        if not own and self.node_name in (key.speaks_for or ()):
            yield Finding(("speaksFor",), f"no other node's key may speak for this node, {self.node_name}")
