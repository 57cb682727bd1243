"""The interfaces between the parts of the listener."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from eventd.api.keys.api_key import ApiKey
from eventd.quic.link import QuicLink
from eventd.streams.frames import ASSUMED
from eventd.streams.permissions import StreamAction


class AuthFailed(Exception):
    """A stream is not authenticated. The text is for the node's log: clients do not get the reason."""


class NoPlace(Exception):
    """A limit on open connections, streams or subscriptions is reached; the text is for the client."""


class Channel(Protocol):
    """Interface: a stream of a connection, as its reader sees it (see `QuicStream`)."""

    @property
    def id(self) -> int: ...
    @property
    def is_unidirectional(self) -> bool: ...
    @property
    def mark(self) -> int: ...
    @property
    def unsent(self) -> int: ...

    def write(self, data: bytes, *, end: bool = False) -> None: ...

    def stop_receiving(self, code: int = 0) -> None: ...

    def reset(self, code: int = 0) -> None: ...


class ClientGrant(Protocol):
    """Interface: what an authenticated stream may do, as long as its token is valid.

    `key` is the key of the API that was the token; None for another token. Connections, streams and subscriptions with
    the same `identity` count together for limits.
    """

    @property
    def tenant(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def key(self) -> ApiKey | None: ...
    @property
    def identity(self) -> bytes: ...

    def allows(self, action: StreamAction, resource: str) -> bool:
        """Return whether it permits an action on a resource."""
        ...

    def ended(self, now: int) -> str:
        """Return why the grant is no longer valid; empty while it is valid. `now`: microseconds since 1970."""
        ...


class Authenticator(Protocol):
    """Interface: decides about tokens."""

    def recall(self, tenant: str, token: str) -> ClientGrant | None:
        """Return what a token permits that was verified before, without waiting; None if it has to be verified."""
        ...

    async def authenticate(self, tenant: str, token: str) -> ClientGrant:
        """Return the grant of a token. Raises `AuthFailed`."""
        ...


class OpenSubscription(Protocol):
    """Interface: a subscription whose events are being sent."""

    @property
    def grant(self) -> ClientGrant: ...

    def end(self, reason: str) -> None:
        """Finish the stream of its events, after a whole frame."""
        ...


class SubscriptionPlaces(Protocol):
    """Interface: the subscriptions of one connection."""

    def take(self, grant: ClientGrant, asked: int | None) -> int:
        """Reserve a place, and return the id of the subscription: the one asked for, or a new one. Raises `NoPlace`."""
        ...

    def hold(self, id: int, subscription: OpenSubscription) -> None:
        """Note which subscription has the place: the connection ends it when its grant ends, or when the node
        stops."""
        ...

    def release(self, id: int) -> None:
        """Give a place back; exactly once after `take`."""
        ...


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The stream that sent a `subscribe`, with its connection. `flags`: of frames that the client understands."""

    link: QuicLink
    grant: ClientGrant
    places: SubscriptionPlaces
    flags: int = ASSUMED
    extensions: frozenset[str] = field(default_factory=frozenset)
