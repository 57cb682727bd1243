"""The dependencies of the surface's handlers, and one request to it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Literal, NamedTuple, Protocol

from eventd.api.errors.failed_requests import FailedRequests
from eventd.api.framework.limits import ConcurrencyLimits
from eventd.api.keys.api_key import ANYONE, ApiKey
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.routemaster.surface_topic import surface_topic_config

Network = IPv4Network | IPv6Network
Kind = Literal["root", "client", "none"]
"""Who a caller is: the administrator, a client with a token, or one that sends no `Authorization` header at all."""


class DueBatches(Protocol):
    """Interface that counts the batches that are due to subscribers."""

    async def count_due(self, within: float) -> int:
        """Return the number of batches that are full, or whose window or wait for a retry ends within this number of
        seconds."""
        ...


CountPublished = Callable[[str, str, int], None]
"""Gets the topic, the publisher's handle, and the bytes of each event that was written."""


class SurfaceConfig(NamedTuple):
    """The settings of the surface.

    `public_url` is `https://HOST[:PORT]`, or empty: redirects then name the host of the request. `proxies` may say
    `X-Forwarded-Proto`, as loopback addresses may. `max_event_data`: bytes of an event's data as MessagePack. From
    `scaling_threshold` batches due within `scaling_deadline` seconds on, the scaling probe is slow. `empty_list`:
    whether a list without tokens is `[]` and not 204. `max_bytes`: of all topics of the node together; 0: unlimited.
    """

    require_tls: bool = True
    public_url: str = ""
    proxies: Sequence[Network] = ()
    max_event_data: int = 64
    scaling_threshold: int = 100
    scaling_deadline: float = 1.0
    empty_list: bool = False
    topic: TopicConfig = surface_topic_config()
    max_bytes: int = 0


class RootKey:
    """The administrator's key, of which only the SHA-256 is kept; without one, no caller is the administrator."""

    def __init__(self, text: str = "") -> None:
        self._digest = b""
        self.set(text)

    def set(self, text: str) -> None:
        """Replace the key; an empty text: there is none."""
        self._digest = hashlib.sha256(text.encode()).digest() if text else b""

    def matches(self, user: str) -> bool:
        """Return whether this is the key, in a time that does not depend on how close it is."""
        digest = hashlib.sha256(user.encode(errors="surrogateescape")).digest()
        return hmac.compare_digest(digest, self._digest)


@dataclass(frozen=True, slots=True)
class SurfaceContext:
    """The dependencies of the handlers.

    `published` counts written events. `reload_keys` reads the tokens again after a change. `changed` is called after
    each change of a subscription, and returns once deliveries follow it. `judge` returns why a callback must not be
    called, empty if it may.
    """

    log: EventLog
    keys: Keys
    root: RootKey
    config: SurfaceConfig
    limits: ConcurrencyLimits
    limiter: ConnectionLimiter
    published: CountPublished
    reload_keys: Callable[[], Awaitable[None]]
    changed: Callable[[], Awaitable[None]]
    due: DueBatches
    judge: Callable[[str], str]
    failed: FailedRequests = field(default_factory=FailedRequests)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock held while waiting events are counted: counting reads the log, so only one request at a time does it."""


class Caller(NamedTuple):
    """A caller. `token` is the token that a client has sent, `key` the key that belongs to it."""

    kind: Kind
    key: ApiKey = ANYONE
    token: str = ""

    @property
    def identity(self) -> str:
        """Return the identity of a client; empty for others."""
        return self.key.identity

    def show(self, identity: str) -> str:
        """Return how the caller sees a client: itself by its own token, another by its handle."""
        return self.token if identity and identity == self.identity else identity


class SurfaceCall(NamedTuple):
    """One request: `name` is the parameter of its path, `key` its idempotency key, both empty without one.

    `body` holds the members of its JSON object, in which numbers are texts (see `json_text`).
    """

    surface: SurfaceContext
    caller: Caller
    name: str
    body: dict[str, Any]
    key: str
