"""EventCallback: an HTTP endpoint that the events of a group, or the records of a topic, are pushed to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.event_subscription import Match
from eventd.resources.kinds.fields import (
    Duration,
    Flag,
    GroupName,
    KeyId,
    SecretPath,
    Size,
    Texts,
    TopicName,
    Url,
    Whole,
    duration_between,
    size_between,
)
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.text.duration import HOUR, MILLISECOND, MINUTE, SECOND
from eventd.text.size import KIB, MIB

_YEAR = 366 * 24 * HOUR
MOST_KEYS = 16
_MOST_HEADERS, _MOST_HEADER_CHARACTERS = 32, 8192
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_VALUE = re.compile(r"[\t -~]*")
_OURS = "accept authorization connection cookie expect host keep-alive proxy-authorization proxy-connection te"
_RESERVED = frozenset([*_OURS.split(), "trailer", "transfer-encoding", "upgrade", "user-agent"])
_RESERVED_BEGINNINGS = ("content-", "webhook-", "routerd-")
EVERYTHING = Match(types=("*",))


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    if len(headers) > _MOST_HEADERS:
        raise wrong(f"must not have more than {_MOST_HEADERS} headers")
    if sum(len(name) + len(value) for name, value in headers.items()) > _MOST_HEADER_CHARACTERS:
        raise wrong(f"must not be longer than {_MOST_HEADER_CHARACTERS} characters together")
    names = [name.lower() for name in headers]
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise wrong(f"{name[:60]!r} is not a valid name of a header")
        if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS):
            raise wrong(f"{name} is set by the node", "leave it out; credentials are written in auth")
        if names.count(name.lower()) > 1:
            raise wrong(f"{name} is there twice, in other letters")
        if not _VALUE.fullmatch(value) or value != value.strip():
            raise wrong(f"the value of {name} must be printable ASCII without blanks at its ends")
    return headers


def _checked_keys(keys: tuple[CallbackKey, ...]) -> tuple[CallbackKey, ...]:
    if len(keys) > MOST_KEYS:
        raise wrong(f"must not have more than {MOST_KEYS} keys")
    ids = [key.id for key in keys]
    for id in ids:
        if ids.count(id) > 1:
            raise wrong(f"the id {id} is there twice", "each key has an id of its own")
    return keys


class CallbackSource(Spec):
    """Where the events come from: a group, or a topic of records."""

    group_ref: GroupName = Field(default="", description="The name of an EventGroup, whose events are pushed.")
    topic: TopicName = Field(default="", description="The name of a topic, whose records are pushed.")

    def findings(self) -> Iterator[Finding]:
        if bool(self.group_ref) == bool(self.topic):
            message = "must not have both groupRef and topic" if self.topic else "needs groupRef or topic"
            yield Finding((), message, "name one source: an EventGroup, or a topic of records")


class CallbackBatch(Spec):
    """When a batch is sent: at so many events or bytes, or when its window ends."""

    max_events: Annotated[Whole, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Maximum number of events in a request; absent: 1 for `standard`, otherwise 100."
    )
    window: Annotated[Duration, duration_between(0, HOUR)] = Field(
        default=0, description="Collect events for so long after the first one was recorded; 0: send what waits."
    )
    max_bytes: Annotated[Size, size_between(KIB, 4 * MIB)] = Field(
        default=MIB, description="Maximum bytes of events in a request, unless a single event is larger."
    )


class CallbackKey(Spec):
    """One key that signs requests."""

    id: KeyId = Field(description="Name of the key, shown with attempts.")
    state: Literal["active", "retiring", "pending", "revoked"] = Field(
        default="active", description="`active` and `retiring` keys sign; `pending` and `revoked` ones do not."
    )
    secret_file: SecretPath = Field(
        description="File of the secret: `whsec_…`, `whsk_…`, or an Ed25519 key as PEM; `credential:NAME` works, too."
    )

    def findings(self) -> Iterator[Finding]:
        if not self.secret_file:
            yield Finding(("secretFile",), "is required", "create one: routerctl callback secret new")


class CallbackSigning(Spec):
    """How requests are signed, in the format of Standard Webhooks; without keys they are not."""

    keys: Annotated[tuple[CallbackKey, ...], AfterValidator(_checked_keys)] = Field(
        default=(), description="The keys; during a rotation, two of them sign."
    )


class CallbackAuth(Spec):
    """Credentials in the header `Authorization`: Basic, or a bearer token."""

    username: str = Field(default="", description="User name for Basic authentication.")
    password_file: SecretPath = Field(default="", description="File of the password; absent: an empty one.")
    bearer_file: SecretPath = Field(default="", description="File of a bearer token.")

    def findings(self) -> Iterator[Finding]:
        if self.bearer_file and (self.username or self.password_file):
            yield Finding(("bearerFile",), "excludes username and passwordFile", "a request has one credential")
        if self.password_file and not self.username:
            yield Finding(("username",), "is required with passwordFile")
        if ":" in self.username or not self.username.isprintable():
            yield Finding(("username",), "must not contain a colon or unprintable characters")


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
        if bool(self.client_cert_file) != bool(self.client_key_file):
            missing = "clientKeyFile" if self.client_cert_file else "clientCertFile"
            yield Finding((missing,), "is required: clientCertFile and clientKeyFile belong together")


class CallbackLimits(Spec):
    """Limits of the requests to the endpoint."""

    timeout: Annotated[Duration, duration_between(100 * MILLISECOND, 10 * MINUTE)] = Field(
        default=20 * SECOND, description="How long one request may take."
    )
    connect_timeout: Annotated[Duration, duration_between(100 * MILLISECOND, MINUTE)] = Field(
        default=5 * SECOND, description="How long a connection may take, with the look-up of the name."
    )
    per_second: Annotated[Whole, Field(ge=0, le=100_000)] = Field(
        default=0, description="Maximum number of requests in a second; 0: no limit."
    )
    in_flight: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=1, description="Requests under way at a time; with more than 1, order holds within a request only."
    )


class CallbackRetry(Spec):
    """How long to wait after a failed request, and when a batch is searched for the event at fault."""

    base_backoff: Annotated[Duration, duration_between(MILLISECOND, HOUR)] = Field(
        default=SECOND, description="The wait after the first failure; it doubles with each failure in a row."
    )
    max_backoff: Annotated[Duration, duration_between(MILLISECOND, 24 * HOUR)] = Field(
        default=10 * MINUTE, description="The longest wait, unless the endpoint asks for more with `Retry-After`."
    )
    isolate_after: Annotated[Whole, Field(ge=1, le=100)] = Field(
        default=5,
        description="After so many answers of 400, 413, 422 or 500 to a batch it is halved; an event at fault becomes a"
        " dead letter once the endpoint accepts another one.",
    )

    def findings(self) -> Iterator[Finding]:
        if self.max_backoff < self.base_backoff:
            yield Finding(("maxBackoff",), "must not be less than baseBackoff")


class EventCallbackSpec(Spec):
    """The spec of an EventCallback."""

    source: CallbackSource = Field(description="Where the events come from.")
    match: Match = Field(
        default=EVERYTHING,
        description="Which events match; absent: all. Of records, `types` tests the tag and `sourceNodes` the node.",
    )
    url: Url = Field(description="The URL that requests are sent to, as it is written.")
    format: Literal["standard", "batch", "records", "routemaster"] = Field(
        default="standard",
        description="`standard`: one event; `batch`: an array of them; `records`: as /v0 shows records; `routemaster`:"
        " as its subscribers expect.",
    )
    start: Literal["now", "earliest"] = Field(
        default="now", alias="from", description="Where a new callback begins: `now`, or the oldest stored event."
    )
    batch: CallbackBatch = Field(default=CallbackBatch(), description="When a batch is sent.")
    signing: CallbackSigning = Field(default=CallbackSigning(), description="How requests are signed.")
    auth: CallbackAuth = Field(default=CallbackAuth(), description="Credentials for the endpoint.")
    headers: Annotated[Texts, AfterValidator(_checked_headers)] = Field(
        default={}, description="Further headers of each request, by name."
    )
    tls: CallbackTls = Field(default=CallbackTls(), description="TLS, for a URL with https.")
    allow_plain: Flag = Field(default=False, description="Allow a URL with http, which anyone on the way can read.")
    limits: CallbackLimits = Field(default=CallbackLimits(), description="Limits of the requests.")
    retry: CallbackRetry = Field(default=CallbackRetry(), description="What happens after a failure.")
    disable_after: Annotated[Duration, duration_between(0, _YEAR)] = Field(
        default=120 * HOUR, description="Pause the callback after failing for so long; 0: never."
    )
    hold: Annotated[Duration, duration_between(0, _YEAR)] = Field(
        default=168 * HOUR,
        description="How long retention keeps events for a callback without a success; 0: not at all.",
    )

    def findings(self) -> Iterator[Finding]:
        """Refuse what cannot work together."""
        plain = self.url.startswith("http://")
        if plain and not self.allow_plain:
            yield Finding(("url",), "must begin with https://", "or write allowPlain: true")
        if plain and self.tls != CallbackTls():
            yield Finding(("url",), "must begin with https:// for spec.tls to have an effect")
        if self.format == "standard" and (self.batch.max_events or 1) > 1:
            yield Finding(("batch", "maxEvents"), "must be 1 for the format standard", "use the format batch")
        if self.format == "standard" and self.batch.window:
            yield Finding(("batch", "window"), "has no effect for the format standard", "use the format batch")
        if self.format == "routemaster" and self.source.group_ref:
            yield Finding(("format",), "routemaster needs a topic as its source")
        if self.format == "routemaster" and "?" in self.url:
            yield Finding(("url",), "must not contain a query for the format routemaster")
        if self.source.topic and self.match.subject_prefixes:
            yield Finding(("match", "subjectPrefixes"), "do not apply to the records of a topic")
        if self.source.topic and self.match.payload:
            yield Finding(("match", "payload"), "does not apply to the records of a topic")
