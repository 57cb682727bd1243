"""EventCallback: an HTTP endpoint that the events of a group, or the records of a topic, are pushed to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.event_subscription import Match
from eventd.resources.kinds.fields import (
    Duration,
    Flag,
    KeyId,
    OptionalGroupName,
    SecretPath,
    Size,
    Texts,
    TopicName,
    Url,
    Whole,
    duration_between,
    size_between,
)
from eventd.resources.kinds.spec import Finding, Spec, worded
from eventd.text.duration import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from eventd.text.size import KIB, MIB

MOST_KEYS: Final = 16
MOST_HEADERS: Final = 32
MOST_HEADER_CHARACTERS: Final = 8192
"""Maximum number of characters of the names and values of all headers together."""
LONGEST_USERNAME: Final = 1024
SIGNING_STATES: Final = ("active", "retiring")
BATCH_EVENTS: Final = 100
"""Events in a request, unless the spec says otherwise or the format takes one event."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_OUR_HEADERS = (
    *("accept", "accept-encoding", "authorization", "connection", "expect", "host", "keep-alive", "te", "trailer"),
    *("transfer-encoding", "upgrade", "user-agent"),
)
_OUR_BEGINNINGS = ("content-", "proxy-", "webhook-", "routerd-")
_INSTEAD = {"authorization": "write spec.auth", "host": "it is that of spec.url"}


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    if findings := tuple(_header_findings(headers)):
        raise worded(findings)
    return headers


def _header_findings(headers: dict[str, str]) -> Iterator[Finding]:
    """Yield the problems of headers, at most one of each. A value may be a secret: it is never shown."""
    if len(headers) > MOST_HEADERS:
        yield Finding((), f"must not be more than {MOST_HEADERS} headers")
    elif sum(len(name) + len(value) for name, value in headers.items()) > MOST_HEADER_CHARACTERS:
        yield Finding((), f"must not be longer than {MOST_HEADER_CHARACTERS} characters together")
    else:
        first: dict[str, str] = {}
        for name, value in headers.items():
            other = first.setdefault(name.lower(), name)
            if other != name:
                yield Finding((name,), f"is the same header as {other}", "write it once")
            elif finding := _header_finding(name, value):
                yield finding


def _header_finding(name: str, value: str) -> Finding | None:
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        return Finding((name,), "is not the name of a header", "use letters, digits and -")
    if lower == "cookie":
        return Finding((name,), "is not sent: callbacks keep no cookies", "leave it out")
    if lower in _OUR_HEADERS or lower.startswith(_OUR_BEGINNINGS):
        return Finding((name,), "is set by the node", _INSTEAD.get(lower, "leave it out"))
    if not _VALUE.fullmatch(value):
        return Finding((name,), "must be printable ASCII characters on one line, without blanks at the ends")
    return None


class CallbackSource(Spec):
    """Where the events come from: a group, or a topic of records."""

    group_ref: OptionalGroupName = Field(default="", description="The name of an EventGroup, whose events are pushed.")
    topic: TopicName = Field(default="", description="Instead of groupRef: the name of a topic of records.")

    def findings(self) -> Iterator[Finding]:
        """Require either `groupRef` or `topic`, but not both."""
        if self.group_ref and self.topic:
            yield Finding(("topic",), "groupRef and topic exclude each other", "leave one of them out")
        elif not (self.group_ref or self.topic):
            yield Finding(("groupRef",), "is required, or topic instead of it")


class CallbackBatch(Spec):
    """How many events one request carries, and how long they are collected."""

    max_events: Annotated[Whole, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description=f"Maximum number of events in a request; absent: 1 for format standard, otherwise {BATCH_EVENTS}.",
    )
    window: Annotated[Duration, duration_between(0, HOUR)] = Field(
        default=0, description="Collect events for at most this long after the first one was recorded."
    )
    max_bytes: Annotated[Size, size_between(KIB, 4 * MIB)] = Field(
        default=MIB, description="Maximum bytes of events in a request; a single event may be larger."
    )


class CallbackKey(Spec):
    """A key that signs requests."""

    id: KeyId = Field(description="The key's name, which the list of attempts shows.")
    state: Literal["active", "retiring", "pending", "revoked"] = Field(
        default="active", description="active and retiring keys sign; pending and revoked keys do not."
    )
    secret_file: SecretPath = Field(
        description="The file of the secret: whsec_…, whsk_…, or a private Ed25519 key as PEM; or `credential:NAME`."
    )

    def findings(self) -> Iterator[Finding]:
        """Refuse a blank file."""
        if not self.secret_file:
            yield Finding(("secretFile",), "is required", "create a secret: routerctl callback secret new")


class CallbackSigning(Spec):
    """How requests are signed: in the format of Standard Webhooks."""

    keys: tuple[CallbackKey, ...] = Field(
        default=(), description="The keys; each active or retiring one signs every request. Without keys: unsigned."
    )

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for repeated key ids, too many keys, and keys of which none signs, unlike no keys."""
        if len(self.keys) > MOST_KEYS:
            yield Finding(("keys",), f"must not be more than {MOST_KEYS} keys")
            return
        first: dict[str, int] = {}
        for at, key in enumerate(self.keys):
            if first.setdefault(key.id, at) != at:
                yield Finding(("keys", at, "id"), f"the key id {key.id} is used twice, first in keys[{first[key.id]}]")
        if self.keys and not any(key.state in SIGNING_STATES for key in self.keys):
            hint = "make one of them active; without signing.keys, requests are not signed"
            yield Finding(("keys",), "contain no active or retiring key, so nothing would be signed", hint)


class CallbackAuth(Spec):
    """The credentials in the header Authorization: Basic, or a bearer token."""

    username: str = Field(default="", description="User name for Basic authentication.")
    password_file: SecretPath = Field(default="", description="The file of its password; absent: an empty password.")
    bearer_file: SecretPath = Field(default="", description="Instead of a user name: the file of a bearer token.")

    def findings(self) -> Iterator[Finding]:
        """Refuse two credentials, a password without its user, and user names that Basic cannot express."""
        if self.bearer_file and (self.username or self.password_file):
            message = "bearerFile excludes username and passwordFile"
            yield Finding(("bearerFile",), message, "a request has one header Authorization")
        elif self.password_file and not self.username:
            yield Finding(("username",), "is required with passwordFile")
        if ":" in self.username or not self.username.isprintable():
            yield Finding(("username",), "must not contain a colon or a control character")
        if len(self.username) > LONGEST_USERNAME:
            yield Finding(("username",), f"must not be longer than {LONGEST_USERNAME} characters")


class CallbackTls(Spec):
    """How the endpoint's certificate is verified, and what this node shows."""

    ca_file: SecretPath = Field(
        default="",
        description="PEM file of CAs, of which one must have issued the endpoint's certificate; absent: the system's.",
    )
    client_cert_file: SecretPath = Field(
        default="", description="PEM file of this node's certificate; absent: none is shown."
    )
    client_key_file: SecretPath = Field(
        default="", description="PEM file of its private key, which others may not read."
    )

    def findings(self) -> Iterator[Finding]:
        """Require certificate and key together."""
        if bool(self.client_cert_file) != bool(self.client_key_file):
            missing = "clientKeyFile" if self.client_cert_file else "clientCertFile"
            yield Finding((missing,), "is required: clientCertFile and clientKeyFile belong together")


class CallbackLimits(Spec):
    """Limits of the requests to the endpoint."""

    timeout: Annotated[Duration, duration_between(100 * MILLISECOND, HOUR)] = Field(
        default=20 * SECOND, description="How long one request may take."
    )
    connect_timeout: Annotated[Duration, duration_between(100 * MILLISECOND, HOUR)] = Field(
        default=5 * SECOND, description="How long a connection may take, with the look-up of the host; part of timeout."
    )
    per_second: Annotated[Whole, Field(ge=0, le=100_000)] = Field(
        default=0, description="Maximum number of requests in a second; 0: no limit."
    )
    in_flight: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=1,
        description="Maximum number of requests in flight at a time; with more than 1, only the events of one request"
        " are in order.",
    )


class CallbackRetry(Spec):
    """What happens after a failed request; the wait doubles with each failure in a row."""

    base_backoff: Annotated[Duration, duration_between(MILLISECOND, HOUR)] = Field(
        default=SECOND, description="The wait after the first failure."
    )
    max_backoff: Annotated[Duration, duration_between(MILLISECOND, 24 * HOUR)] = Field(
        default=10 * MINUTE, description="The longest wait, unless the endpoint asks for more with Retry-After."
    )
    isolate_after: Annotated[Whole, Field(ge=1, le=100)] = Field(
        default=5,
        description="After this many answers that may be about the content (400, 413, 422, 500), a batch is halved; an"
        " event at fault becomes a dead letter once the endpoint accepts another one.",
    )

    def findings(self) -> Iterator[Finding]:
        if self.max_backoff < self.base_backoff:
            yield Finding(("maxBackoff",), "must not be less than baseBackoff")


class EventCallbackSpec(Spec):
    """The spec of an EventCallback."""

    source: CallbackSource = Field(description="Where the events come from.")
    match: Match = Field(
        default_factory=lambda: Match(types=("*",)),
        description="Which events match; absent: all. Of a record, types test the tag, and sourceNodes the node.",
    )
    url: Url = Field(description="The URL of the endpoint. Requests are sent to it as it is written.")
    format: Literal["standard", "batch", "records", "routemaster"] = Field(
        default="standard",
        description="standard: one event in a request; batch: a list of them; records: as the topics API shows records;"
        " routemaster: as a Routemaster bus delivers.",
    )
    start: Literal["now", "earliest"] = Field(
        default="now", alias="from", description="Where a new callback begins: now, or earliest: the oldest event."
    )
    batch: CallbackBatch = Field(default_factory=CallbackBatch, description="How many events one request carries.")
    signing: CallbackSigning = Field(default_factory=CallbackSigning, description="How requests are signed.")
    auth: CallbackAuth = Field(default_factory=CallbackAuth, description="The credentials in the header Authorization.")
    headers: Annotated[Texts, AfterValidator(_check_headers)] = Field(
        default={}, description="Further headers of each request, by name."
    )
    tls: CallbackTls = Field(default_factory=CallbackTls, description="TLS, for a URL with https.")
    allow_plain: Flag = Field(
        default=False, description="Allow a URL with http: anyone on the way can read and change the events."
    )
    limits: CallbackLimits = Field(
        default_factory=CallbackLimits, description="Limits of the requests to the endpoint."
    )
    retry: CallbackRetry = Field(default_factory=CallbackRetry, description="What happens after a failed request.")
    disable_after: Annotated[Duration, duration_between(0, 366 * DAY)] = Field(
        default=120 * HOUR,
        description="The node pauses a callback that has failed for this long, at least 12 h; 0: never.",
    )
    hold: Annotated[Duration, duration_between(0, 366 * DAY)] = Field(
        default=168 * HOUR,
        description="How long retention keeps the events of a callback that fails or is paused; 0: not at all.",
    )

    @property
    def most_events(self) -> int:
        """Return `batch.maxEvents`, or its default, which depends on the format."""
        return self.batch.max_events or (1 if self.format == "standard" else BATCH_EVENTS)

    def effective(self) -> dict[str, Any]:
        """Return the spec with every default filled in, also the one that depends on the format."""
        filled = super().effective()
        filled["batch"]["maxEvents"] = self.most_events
        return filled

    def findings(self) -> Iterator[Finding]:
        """Yield combinations that cannot work, or that promise what they do not give."""
        yield from self._url_findings()
        if self.format == "standard" and self.most_events != 1:
            yield Finding(("batch", "maxEvents"), "must be 1 for format standard", "or write format: batch")
        if self.format == "standard" and self.batch.window:
            message = "has no effect for format standard, whose requests carry one event"
            yield Finding(("batch", "window"), message, "leave it out, or write format: batch")
        if self.format == "routemaster" and not self.source.topic:
            message = "routemaster needs spec.source.topic: events of a group do not have its form"
            yield Finding(("format",), message, "write standard, batch or records")
        if self.source.topic:
            hint = "records are selected by types, which test the tag, and by sourceNodes"
            if self.match.subject_prefixes:
                yield Finding(("match", "subjectPrefixes"), "is only for events of a group: records have none", hint)
            if self.match.payload:
                yield Finding(("match", "payload"), "is only for events of a group", hint)

    def _url_findings(self) -> Iterator[Finding]:
        is_plain = self.url.startswith("http://")
        if is_plain and self.tls != CallbackTls():
            yield Finding(("url",), "must begin with https:// for spec.tls to have an effect")
        elif is_plain and not self.allow_plain:
            message = "must begin with https://: anyone on the way could read and change the events"
            yield Finding(("url",), message, "or write allowPlain: true")
        if self.format == "routemaster" and "?" in self.url:
            yield Finding(("url",), "must not contain a query for format routemaster")
