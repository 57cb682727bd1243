"""A listener of streams without QUIC: connections and streams in memory, over a real log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from eventd.api.keys.api_key import ApiKey
from eventd.api.quic.cache import Caches
from eventd.api.quic.interfaces import AuthFailed
from eventd.api.quic.listener import StreamListener
from eventd.api.quic.options import StreamOptions
from eventd.api.quic.request_stream import RequestStream
from eventd.api.quic.session import StreamSession
from eventd.quic.link import NoStreamsLeft
from eventd.resources.stream_configuration import CacheSpec
from eventd.runtime.clock import Clock
from eventd.streams.names import CacheName
from eventd.streams.permissions import Permission, StreamAction, read_permissions
from tests.support import felix_wire as wire
from tests.support.felix_wire import RawFrame
from tests.support.v0 import Server, serving

TENANT = "t1"
EVERYTHING = ("stream.publish:*", "stream.subscribe:*", "cache.read:*", "cache.write:*")
PATIENCE = 10.0


class TestGrant:
    """A grant with permissions, which a test can end."""

    __test__ = False
    key: ApiKey | None = None

    def __init__(self, subject: str, permissions: tuple[Permission, ...]) -> None:
        self.tenant = TENANT
        self.subject = subject
        self.identity = subject.encode()
        self.reason = ""
        self._permissions = permissions

    def allows(self, action: StreamAction, resource: str) -> bool:
        return any(each.allows(action, resource) for each in self._permissions)

    def ended(self, now: int) -> str:
        return self.reason


class TokensOfTest:
    """Accepts tokens that are permissions, separated by blanks, after the subject; `gate`, if set, is waited for."""

    def __init__(self) -> None:
        self.grants: list[TestGrant] = []
        self.gate: asyncio.Event | None = None

    def recall(self, tenant: str, token: str) -> TestGrant | None:
        return None

    async def authenticate(self, tenant: str, token: str) -> TestGrant:
        if self.gate is not None:
            await self.gate.wait()
        subject, *permissions = token.split()
        if tenant != TENANT or subject == "nobody":
            raise AuthFailed("a test says so")
        grant = TestGrant(subject, read_permissions(permissions or EVERYTHING))
        self.grants.append(grant)
        return grant


class MemoryLink:
    """A connection in memory. `left`: how many streams the client lets the node open."""

    def __init__(self) -> None:
        self.remote = "192.0.2.1:4433"
        self.is_closed = False
        self.unsent = 0
        self.left = 100
        self.opened: list[MemoryChannel] = []
        self.closed_with: tuple[int, str] | None = None
        self.pings = 0
        self.is_paused = False

    def streams_left(self, *, unidirectional: bool) -> int:
        return self.left - len(self.opened)

    def open_stream(self, events: Any, *, unidirectional: bool = False) -> MemoryChannel:
        if self.streams_left(unidirectional=unidirectional) < 1:
            raise NoStreamsLeft
        channel = MemoryChannel(self, is_unidirectional=unidirectional)
        channel.events = events
        self.opened.append(channel)
        return channel

    def ping(self) -> None:
        self.pings += 1

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, code: int = 0, reason: str = "") -> None:
        self.is_closed = True
        self.closed_with = self.closed_with or (code, reason)


class MemoryChannel:
    """A stream in memory: what the node writes can be read as frames.

    `reads`: whether the client takes what is written; otherwise it stays `unsent`.
    """

    def __init__(self, link: MemoryLink, *, is_unidirectional: bool = False) -> None:
        self.id = 0
        self.link = link
        self.is_unidirectional = is_unidirectional
        self.mark = 256 << 10
        self.reads = True
        self.unsent = 0
        self.sent = bytearray()
        self.has_ended = False
        self.is_stopped = False
        self.reset_with: int | None = None
        self.events: Any = None
        self._news = asyncio.Event()

    def write(self, data: bytes, *, end: bool = False) -> None:
        assert not self.has_ended, "nothing is written after the end"
        self.sent += data
        if not self.reads:
            self.unsent += len(data)
        self.has_ended = end
        self._news.set()

    def stop_receiving(self, code: int = 0) -> None:
        self.is_stopped = True
        self._news.set()

    def reset(self, code: int = 0) -> None:
        self.reset_with = code
        self._news.set()

    def take_all(self) -> None:
        """Read what is unsent, as the client."""
        self.reads, was, self.unsent = True, self.unsent, 0
        if was >= self.mark:
            self.events.has_room()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so, which is looked at after each write."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._news.clear()
                await self._news.wait()


class ClientStreamOfTest:
    """One stream of a client."""

    def __init__(self, session: StreamSession, link: MemoryLink, *, is_unidirectional: bool = False) -> None:
        self.channel = MemoryChannel(link, is_unidirectional=is_unidirectional)
        self.stream: RequestStream = session.stream_opened(self.channel)
        self.channel.events = self.stream

    def send(self, *parts: bytes, end: bool = False) -> None:
        """Send frames, or parts of them."""
        if not self.channel.is_stopped:
            self.stream.received(b"".join(parts), ended=end)

    async def frame(self) -> RawFrame:
        """Return the next frame."""
        sent = self.channel.sent
        await self.channel.until(lambda: self._is_whole(sent) or self.channel.has_ended)
        assert self._is_whole(sent), "the stream has ended"
        _, _, flags, length = wire.HEADER.unpack_from(sent)
        payload = bytes(sent[wire.HEADER.size : wire.HEADER.size + length])
        del sent[: wire.HEADER.size + length]
        return RawFrame(flags, payload)

    @staticmethod
    def _is_whole(sent: bytearray) -> bool:
        size = wire.HEADER.size
        return len(sent) >= size and len(sent) >= size + int(wire.HEADER.unpack_from(sent)[3])

    async def message(self) -> dict[str, Any]:
        """Return the next frame, a JSON message."""
        found = await self.frame()
        assert found.flags == 0, found
        return wire.read_json(found.payload)

    async def ask(self, *parts: bytes) -> dict[str, Any]:
        """Send, and return the next message."""
        self.send(*parts)
        return await self.message()

    async def ack(self) -> wire.WireAck:
        """Return the next frame, a binary acknowledgement."""
        return wire.read_ack(await self.frame())

    async def ended(self) -> bool:
        """Wait for the end of the stream; return whether all that was written has been read."""
        channel = self.channel
        await channel.until(lambda: channel.is_stopped and (channel.has_ended or channel.is_unidirectional))
        return not channel.sent

    async def error(self) -> str:
        """Return the text of the error that ends the stream."""
        found = await self.message()
        assert found["type"] == "error", found
        assert await self.ended()
        return str(found["message"])


class StreamsInMemory:
    """A listener that is not connected to any network."""

    def __init__(self, server: Server, options: StreamOptions) -> None:
        self.server = server
        self.tokens = TokensOfTest()
        metrics = server.v0.serving.metrics
        self.metrics = metrics
        self.caches = Caches(server.log.clock, 64 << 20, 100_000, metrics.streams.evicted)
        self.caches.declare({CacheName(TENANT, "default", "primary"): CacheSpec(1 << 20, 1000, None)})
        self.listener = StreamListener(
            server.v0, self.tokens, self.caches, options, metrics.streams, server.v0.supervisor
        )
        self.link = MemoryLink()
        self.session = self.listener.accept(cast(Any, self.link))

    def connect(self) -> None:
        """Open another connection, on which further streams are opened."""
        self.link = MemoryLink()
        self.session = self.listener.accept(cast(Any, self.link))

    def fresh(self, *, is_unidirectional: bool = False) -> ClientStreamOfTest:
        """Open a stream."""
        return ClientStreamOfTest(self.session, self.link, is_unidirectional=is_unidirectional)

    async def stream(
        self, token: str = "tester", *, flags: int | None = wire.ALL_FLAGS, is_unidirectional: bool = False, **more: Any
    ) -> ClientStreamOfTest:
        """Open a stream, and authenticate."""
        stream = self.fresh(is_unidirectional=is_unidirectional)
        stream.send(auth(token, flags=flags, **more))
        if not is_unidirectional:
            answer = await stream.message()
            assert answer["type"] in ("auth_ok", "ok"), answer
        return stream

    def counted(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        found = self.metrics.registry.get_sample_value(f"routerd_eventd_{name}", labels)
        return found or 0.0

    async def records(self, topic: str) -> list[dict[str, Any]]:
        """Return the records of a topic."""
        return list((await self.server.diff(topic)).body["records"])


def auth(token: str = "tester", *, flags: int | None = wire.ALL_FLAGS, **more: Any) -> bytes:
    """Return the first frame of a stream."""
    asked = {} if flags is None else {"client_flags": flags}
    return wire.message("auth", **{"tenant_id": TENANT, "token": token, **asked, **more})


def read(payload: bytes | str) -> Any:
    """Return JSON as values."""
    return json.loads(payload)


@asynccontextmanager
async def streams_in_memory(
    url: str, *, clock: Clock | None = None, limits: dict[str, int] | None = None, **options: Any
) -> AsyncIterator[StreamsInMemory]:
    """Yield a listener over a database, which is created if missing."""
    async with serving(url, clock=clock, **(limits or {})) as server:
        yield StreamsInMemory(server, StreamOptions(**options))
