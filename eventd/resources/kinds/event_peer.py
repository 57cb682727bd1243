"""EventPeer: a node that this one sends a group's events to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import (
    Duration,
    Endpoint,
    EventType,
    Flag,
    GroupName,
    HostName,
    NodeName,
    OptionalLink,
    Pin,
    SecretPath,
    Size,
    SubjectPrefix,
    Whole,
    duration_between,
    size_between,
)
from eventd.resources.kinds.history_keys import PeerHistoryKeys
from eventd.resources.kinds.spec import Finding, Spec
from eventd.text.duration import HOUR, MILLISECOND, SECOND
from eventd.text.size import GIB, KIB, MIB


class PeerLimits(Spec):
    """Limits of the requests to a peer."""

    in_flight: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=4, description="Maximum number of batches in flight at a time."
    )
    batch_events: Annotated[Whole, Field(ge=1, le=10_000)] = Field(
        default=2500, description="Maximum number of events in a batch."
    )
    batch_bytes: Annotated[Size, size_between(KIB, GIB)] = Field(default=MIB, description="Maximum bytes in a batch.")
    timeout: Annotated[Duration, duration_between(100 * MILLISECOND, HOUR)] = Field(
        default=30 * SECOND, description="How long one request may take."
    )


class Retry(Spec):
    """How long to wait after a failed request; the wait doubles with each failure in a row."""

    base_backoff: Annotated[Duration, duration_between(MILLISECOND, HOUR)] = Field(
        default=200 * MILLISECOND, description="The wait after the first failure."
    )
    max_backoff: Annotated[Duration, duration_between(MILLISECOND, 24 * HOUR)] = Field(
        default=30 * SECOND, description="The longest wait."
    )

    def findings(self) -> Iterator[Finding]:
        if self.max_backoff < self.base_backoff:
            yield Finding(("maxBackoff",), "must not be less than baseBackoff")


class PeerTls(Spec):
    """How the peer's certificate is verified, and what this node shows."""

    ca_file: SecretPath = Field(
        default="",
        description="PEM file of CAs, of which one must have issued the peer's certificate; absent: the system's CAs,"
        " or with pins alone: none.",
    )
    cert_file: SecretPath = Field(default="", description="PEM file of this node's certificate; absent: none is shown.")
    key_file: SecretPath = Field(default="", description="PEM file of its private key, which others may not read.")
    server_name: HostName = Field(
        default="",
        description="Name that the peer's certificate must have; absent: the endpoint's host. Not checked with pins"
        " alone.",
    )
    pins: tuple[Pin, ...] = Field(
        default=(),
        description="Public keys, of which the peer's certificate must have one: `sha256//BASE64`, as `routerd-eventd"
        " tls show` prints it.",
    )

    def findings(self) -> Iterator[Finding]:
        """Require certificate and key together."""
        if bool(self.cert_file) != bool(self.key_file):
            missing = "keyFile" if self.cert_file else "certFile"
            yield Finding((missing,), "is required: certFile and keyFile belong together")


class EventPeerSpec(Spec):
    """The spec of an EventPeer."""

    group_ref: GroupName = Field(description="The name of the EventGroup.")
    node_name: NodeName = Field(description="The peer's name in the group, as in its own EventGroup.")
    endpoint: Endpoint = Field(description="Base URL of the peer's listener; paths are added to it.")
    console: OptionalLink = Field(
        default="", description="URL of the peer's console, to which this node's map links; sent to no other node."
    )
    direction: Annotated[Literal["", "push"], AfterValidator(lambda value: value or "push")] = Field(
        default="push", description="Only push; empty means the same."
    )
    protocol: Literal["auto", "v1", "v2"] = Field(
        default="auto", description="auto detects whether the peer speaks v1 or v2, and remembers it."
    )
    types: tuple[EventType, ...] = Field(
        default=(), description="Send only events of these types, all if empty; `a.b.*` means every type below a.b."
    )
    subject_prefixes: tuple[SubjectPrefix, ...] = Field(
        default=(), description="Send only events whose subject begins with one of these; all if empty."
    )
    tls: PeerTls = Field(default_factory=PeerTls, description="TLS, for an endpoint with https.")
    relay: Flag = Field(default=False, description="Also send the peer events that came from other nodes.")
    history: PeerHistoryKeys = Field(
        default_factory=PeerHistoryKeys,
        description="Keys of the peer's history, which count more than those that it shows; another one is refused.",
    )
    limits: PeerLimits = Field(default_factory=PeerLimits, description="Limits of the requests to the peer.")
    retry: Retry = Field(default_factory=Retry, description="How long to wait after a failure.")

    def findings(self) -> Iterator[Finding]:
        """Refuse keys of other nodes, and settings of TLS without TLS: the link would not have that protection."""
        for fault in self.history.faults(self.node_name):
            yield Finding(("history", *fault.path), fault.message)
        if self.tls != PeerTls() and self.endpoint.startswith("http://"):
            yield Finding(("endpoint",), "must begin with https:// for spec.tls to have an effect")
