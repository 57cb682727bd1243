"""Access to the streams and caches of one node from a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, overload

from eventd.client.streams.caching import Cache, CacheRequests
from eventd.client.streams.lane import Lane, LaneTiming
from eventd.client.streams.pool import ConnectionPool, StreamIdentity, StreamServer
from eventd.client.streams.publishing import Publishing, closed, place_of, require_size
from eventd.client.streams.subscribing import OnGap, Start, SubscribeOptions, Subscription
from eventd.client.streams.token import Token, TokenSource
from eventd.client.streams.unacknowledged import UnacknowledgedLane
from eventd.client.streams.values import Published
from eventd.errors import Invalid
from eventd.quic.library import require
from eventd.quic.trust import ServerTrust
from eventd.runtime.chance import SYSTEM, Chance
from eventd.runtime.clock import Clock, SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.streams.names import CacheName, StreamName, is_name

ANONYMOUS: Final = "default"
"""The tenant of a client that names no tenant."""
DEFAULT_PORT: Final = 5000
BUFFER: Final = 4 << 20


class StreamClient:
    """A node's streams and caches: `server` is `HOST:PORT`, `tenant` and `token` say who the client is.

    `token`: a text, the path of a file, or a function that returns one, also asynchronously; the file and the function
    are read again for each stream that is opened. `ca`: PEM file of CAs or of the server's certificate, instead of the
    system's CAs. `pin`: the SHA-256 of the certificate, or of its public key as `sha256//BASE64`; then nothing else
    counts. `server_name`: the name in the certificate, by default the host. `verify=False` accepts any certificate of a
    loopback address.

    A request whose answer is lost is sent again over a new connection, for up to `patience` seconds; records are
    written once. `connections`, `publish_streams` and `cache_streams` are counts, `window` the maximum of records that
    wait for an answer. Use a client as a context manager, on one loop.
    """

    def __init__(
        self,
        server: str,
        tenant: str = ANONYMOUS,
        token: Token = "",
        *,
        ca: str | Path = "",
        pin: str = "",
        server_name: str = "",
        verify: bool = True,
        patience: float = 60.0,
        connections: int = 2,
        publish_streams: int = 4,
        cache_streams: int = 4,
        window: int = 256,
        keep_alive: float = 4.0,
        clock: Clock | None = None,
        chance: Chance = SYSTEM,
    ) -> None:
        require("StreamClient")
        if min(connections, publish_streams, cache_streams, window) < 1 or keep_alive <= 0 or patience < 0:
            raise Invalid("the counts and keep_alive of a StreamClient must be positive, its patience at least 0")
        if not is_name(tenant):
            raise Invalid(f"{tenant[:80]!r} is not a valid tenant", hint="letters, digits, '.', '_' and '-'")
        host, port = parse_server(server)
        self._server = StreamServer(host, port, ServerTrust(b"", pin, server_name, not verify), str(ca))
        self._tenant = tenant
        self._identity = StreamIdentity(tenant, TokenSource(token), chance.token(16).hex())
        self._sizes = connections, publish_streams, cache_streams
        self._window = window
        self._keep_alive = keep_alive
        self._clock = clock or SystemClock()
        self._timing = LaneTiming(self._clock, chance, patience)
        self._subscriptions: dict[Subscription, None] = {}
        self._supervisor: Supervisor | None = None
        self._pool: ConnectionPool
        self._publishing: Publishing
        self._unacknowledged: Sequence[UnacknowledgedLane]
        self._cache_requests: CacheRequests

    @overload
    async def publish(self, name: str, payload: bytes, *, ack: Literal[True] = True) -> Published: ...

    @overload
    async def publish(self, name: str, payload: bytes, *, ack: bool) -> Published | None: ...

    async def publish(self, name: str, payload: bytes, *, ack: bool = True) -> Published | None:
        """Publish a record to the stream `NAMESPACE/STREAM`, and return the node's answer; see `publish_batch`."""
        return await self.publish_batch(name, (payload,), ack=ack)

    @overload
    async def publish_batch(self, name: str, payloads: Sequence[bytes], *, ack: Literal[True] = True) -> Published: ...

    @overload
    async def publish_batch(self, name: str, payloads: Sequence[bytes], *, ack: bool) -> Published | None: ...

    async def publish_batch(self, name: str, payloads: Sequence[bytes], *, ack: bool = True) -> Published | None:
        """Publish records in a row, all or none, and return the node's answer.

        Publishes of several tasks to one stream share frames. Without `ack`, the records are handed to the connection
        and None is returned; records under way when it breaks are lost, and a refusal is raised by a later call.

        Raises `TooLarge` before anything is sent, the node's `Forbidden`, `NotFound` and `Full`, and, after `patience`,
        `Throttled`, or `Lost`: then it is unknown whether the records were written. So it is after a cancellation.
        """
        self._require_open()
        stream = self._stream_name(name)
        if ack:
            return await self._publishing.publish(stream, payloads)
        require_size(payloads)
        lanes = self._unacknowledged
        await lanes[place_of(stream, len(lanes))].publish(stream, payloads)
        return None

    def subscribe(
        self,
        name: str,
        start: Start = "latest",
        *,
        on_gap: OnGap = "tell",
        epoch: str = "",
        skip_behind: int | None = None,
        buffer: int = BUFFER,
    ) -> Subscription:
        """Return a subscription to the stream `NAMESPACE/STREAM`, an asynchronous iterable of `Event` and `StreamGap`.

        `start`: `latest`, `earliest`, or `At(offset)` of the first event that was not seen; `epoch`: that of the log in
        which the offset counts. If events are missing there, `on_gap` yields a `StreamGap` or raises
        `OffsetUnavailable`. A subscription that is more than `skip_behind` events behind jumps to the end, with a gap.
        It receives up to `buffer` bytes ahead of the program.

        Raises `NotFound`, `Forbidden`, `Unauthorized`, and `Unavailable` after `patience`.
        """
        supervisor = self._require_open()
        options = SubscribeOptions(start, on_gap, epoch, skip_behind, buffer)
        made = Subscription(
            self._pool, self._stream_name(name), options, self._timing, supervisor, self._subscriptions.pop
        )
        self._subscriptions[made] = None
        return made

    def cache(self, name: str) -> Cache:
        """Return the cache `NAMESPACE/CACHE`."""
        self._require_open()
        return Cache(CacheName(self._tenant, *_two_names(name, "cache")), self._cache_requests)

    async def reach(self) -> None:
        """Connect and authenticate once, without further attempts. Raises `Unauthorized` and `Unavailable`."""
        self._require_open()
        (await self._pool.open(0, lambda frame: None)).finish()

    async def close(self) -> None:
        """Close all connections. Calls that wait for an answer raise `Lost`."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        try:
            for subscription in [*self._subscriptions]:
                await subscription.aclose(closed())
            self._publishing.close()
            self._cache_requests.close(closed())
        finally:
            self._pool.close()
            await supervisor.stop()

    async def __aenter__(self) -> StreamClient:
        supervisor = self._supervisor = Supervisor(self._clock)
        connections, publish_streams, cache_streams = self._sizes
        self._pool = ConnectionPool(
            self._server,
            self._identity,
            size=connections,
            alive=self._keep_alive,
            clock=self._clock,
            supervisor=supervisor,
        )

        def lanes(count: int) -> list[Lane]:
            return [Lane(self._pool, place, self._timing, supervisor) for place in range(count)]

        self._publishing = Publishing(lanes(publish_streams), self._timing, self._window)
        self._unacknowledged = [UnacknowledgedLane(self._pool, place, self._timing) for place in range(publish_streams)]
        self._cache_requests = CacheRequests(lanes(cache_streams), self._timing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._supervisor is not None:
                await self._publishing.drain()
                for lane in self._unacknowledged:
                    await lane.finish()
                for lane in self._unacknowledged:
                    lane.raise_forbidden()
        finally:
            await self.close()

    def _require_open(self) -> Supervisor:
        if self._supervisor is None:
            raise Invalid("the client is not open", hint="async with StreamClient(…) as streams: …")
        return self._supervisor

    def _stream_name(self, name: str) -> StreamName:
        return StreamName(self._tenant, *_two_names(name, "stream"))


def parse_server(text: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`. Raises `Invalid`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Invalid(f"{text[:80]!r} is not a valid address", hint="write HOST:PORT, such as 127.0.0.1:5000")
    return host, int(port)


def _two_names(text: str, what: str) -> tuple[str, str]:
    first, _, second = text.partition("/")
    if not (is_name(first) and is_name(second)):
        raise Invalid(f"{text[:160]!r} is not the name of a {what}", hint=f"write NAMESPACE/{what.upper()}")
    return first, second
