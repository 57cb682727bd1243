"""A small server of streams for tests of the client: it keeps what it gets in memory, and misbehaves on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from eventd.quic.certificate import QuicCertificate
from eventd.quic.limits import TransportLimits
from eventd.quic.link import QuicLink
from eventd.quic.server import QuicServer
from eventd.quic.stream import QuicStream
from eventd.runtime.clock import SystemClock
from eventd.streams.base64_text import read_bytes
from eventd.streams.frames import KNOWN, Flags, Frame, StreamFrameReader, encode_frame
from eventd.streams.layouts import (
    EventBatch,
    PublishAck,
    PublishBatch,
    read_acknowledged,
    read_publish,
    write_ack,
    write_events,
)
from eventd.streams.messages import (
    At,
    AuthOk,
    AuthRequest,
    CacheGetRequest,
    CacheOk,
    CachePutRequest,
    CacheValue,
    Error,
    EventStreamHello,
    GapMessage,
    Message,
    Ok,
    PublishBatchRequest,
    PublishOk,
    SubscribeCursorError,
    Subscribed,
    SubscribeRequest,
    read_message,
    write_message,
)
from tests.support.certificates import Authority

PATIENCE = 10.0


class ScriptedServer:
    """Its records, values, and what it is to do wrong. Tests read and change the attributes."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        files = authority.issue("quic")
        self.ca = authority.file
        self.pin = files.pin
        self.certificate = QuicCertificate.of_files(files.cert, files.key, SystemClock().now())
        self.records: dict[str, list[bytes]] = {"t1/default/orders": [], "t1/default/other": []}
        self.values: dict[str, bytes] = {}
        self.ttls: dict[str, int | None] = {}
        self.epoch = "e1"
        self.oldest = 0
        self.flags: int | None = KNOWN  # None: answers `ok`, as a server without extensions
        self.tokens: list[str] = []  # of all streams, in their order
        self.sessions: list[str | None] = []
        self.frames: list[int] = []  # how many records each publish had
        self.subscribes: list[SubscribeRequest] = []
        self.links: list[QuicLink] = []
        self.streams: list[ScriptedStream] = []
        self.feeds: list[ScriptedFeed] = []
        self.refuse: Callable[[str], str] = lambda _: ""  # the refusal of a publish to a stream, or of a cache request
        self.refuse_token: Callable[[str], str] = lambda _: ""
        self.holds_answers = False
        self.garbage = b""  # what is sent in place of each answer
        self.layout: Callable[[ScriptedFeed, int, list[bytes]], bytes] = shared_with_offsets
        self.written: dict[tuple[str | None, int], int] = {}
        self.server: QuicServer
        self.changed = asyncio.Event()

    @property
    def address(self) -> str:
        host, port = self.server.address
        return f"{host}:{port}"

    def accept(self, link: QuicLink) -> ScriptedLink:
        self.links.append(link)
        self.note()
        return ScriptedLink(self, link)

    def note(self) -> None:
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; it is looked at after each event of the server."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def cut(self) -> None:
        """End all connections."""
        links, self.links = self.links, []
        for link in links:
            link.close(0, "cut")

    def append(self, name: str, payloads: list[bytes]) -> int:
        """Store records, and send them to the subscriptions; return the first offset."""
        log = self.records[name]
        first = len(log)
        log += payloads
        for feed in [*self.feeds]:
            if feed.name == name:
                feed.send(first, payloads)
        return first


class ScriptedLink:
    """The user of a connection."""

    def __init__(self, server: ScriptedServer, link: QuicLink) -> None:
        self.server = server
        self.link = link

    def opened(self) -> None:
        pass

    def stream_opened(self, stream: QuicStream) -> ScriptedStream:
        made = ScriptedStream(self, stream)
        self.server.streams.append(made)
        return made

    def closed(self, code: int, reason: str) -> None:
        self.server.feeds = [feed for feed in self.server.feeds if feed.link is not self.link]
        self.server.note()


class ScriptedFeed:
    """The stream of a subscription's events."""

    def __init__(self, server: ScriptedServer, link: QuicLink, name: str, number: int) -> None:
        self.server = server
        self.link = link
        self.name = name
        self.number = number
        self.stream = link.open_stream(self, unidirectional=True)
        self.stream.write(encode_frame(0, write_message(EventStreamHello(subscription_id=number))))
        server.feeds.append(self)

    def send(self, base: int, payloads: list[bytes]) -> None:
        if payloads:
            self.stream.write(self.server.layout(self, base, payloads))

    def gap(self, first: int, last: int, reason: str) -> None:
        """Report lost events."""
        missed = last - first + 1
        told = GapMessage(subscription_id=self.number, first=first, to=last, reason=reason, missed=missed)
        self.stream.write(encode_frame(0, write_message(told)))

    def end(self) -> None:
        self.stream.write(b"", end=True)
        self.server.feeds.remove(self)

    def received(self, data: bytes, *, ended: bool) -> None: ...

    def was_reset(self, code: int) -> None: ...

    def was_stopped(self, code: int) -> None:
        if self in self.server.feeds:
            self.server.feeds.remove(self)
        self.server.note()

    def has_room(self) -> None: ...

    def lost(self) -> None: ...


class ScriptedStream:
    """A stream of requests."""

    def __init__(self, link: ScriptedLink, stream: QuicStream) -> None:
        self.link = link
        self.server = link.server
        self.stream = stream
        self.session: str | None = None
        self.is_authenticated = False
        self.has_ended = False
        self.has_failed = False  # the client has given it up
        self._reader = StreamFrameReader()

    def say(self, message: Message, *, end: bool = False) -> None:
        if self.server.garbage:
            self.stream.write(self.server.garbage)
            return
        self.stream.write(encode_frame(0, write_message(message)), end=end)

    def received(self, data: bytes, *, ended: bool) -> None:
        for frame in self._reader.feed(data):
            if not self.is_authenticated:
                message = read_message(frame.payload)
                assert isinstance(message, AuthRequest)
                self._authenticate(message)
            else:
                self._request(frame)
        if ended:
            self.has_ended = True
            self.stream.write(b"", end=True)
        self.server.note()

    def was_reset(self, code: int) -> None:
        self.has_failed = True
        self.server.note()

    def was_stopped(self, code: int) -> None: ...

    def has_room(self) -> None: ...

    def lost(self) -> None: ...

    def _authenticate(self, request: AuthRequest) -> None:
        server = self.server
        server.tokens.append(request.token)
        server.sessions.append(request.session)
        if refusal := server.refuse_token(request.token):
            self.say(Error(message=refusal), end=True)
            return
        self.is_authenticated = True
        self.session = request.session
        if server.flags is None:
            self.say(Ok())
        else:
            self.say(AuthOk(server_flags=server.flags, ext=request.ext))

    def _request(self, frame: Frame) -> None:
        if frame.flags == Flags.PUBLISH | Flags.ACKNOWLEDGED:
            acknowledged = read_acknowledged(frame.payload)
            batch = read_publish(acknowledged.body)
            self._answer_publish(batch, acknowledged.request_id, binary=True)
        elif frame.flags == Flags.PUBLISH:
            batch = read_publish(frame.payload)
            if refusal := self.server.refuse(batch.stream):
                self.say(Error(message=refusal), end=True)
            else:
                self.server.append("/".join(batch[:3]), list(batch.payloads))
        else:
            self._message(read_message(frame.payload))

    def _message(self, message: Any) -> None:
        match message:
            case PublishBatchRequest():
                payloads = [*map(read_bytes, message.payloads)]
                batch = PublishBatch(str(message.tenant_id), str(message.namespace), message.stream, payloads)
                assert isinstance(message.request_id, int)
                self._answer_publish(batch, message.request_id, binary=False)
            case SubscribeRequest():
                self._subscribe(message)
            case CachePutRequest() | CacheGetRequest():
                self._cache(message)

    def _answer_publish(self, batch: PublishBatch, number: int, *, binary: bool) -> None:
        server = self.server
        name = "/".join(batch[:3])
        server.frames.append(len(batch.payloads))
        if refusal := server.refuse(batch.stream):
            return self.stream.write(write_ack(PublishAck(number, True, refusal)))
        if name not in server.records:
            text = f"stream not found: tenant={batch.tenant} namespace={batch.namespace} stream={batch.stream}"
            return self.stream.write(write_ack(PublishAck(number, True, text)))
        key = self.session, number
        if self.session is None or key not in server.written:
            server.written[key] = server.append(name, list(batch.payloads))
        if server.holds_answers:
            return None
        told = {
            "offset": server.written[key],
            "count": len(batch.payloads),
            "durability": "fsync",
            "epoch": server.epoch,
        }
        if binary:
            return self.stream.write(write_ack(PublishAck(number, False, msgspec.json.encode(told).decode())))
        return self.say(PublishOk(request_id=number))

    def _subscribe(self, request: SubscribeRequest) -> None:
        server = self.server
        server.subscribes.append(request)
        name = f"{request.tenant_id}/{request.namespace}/{request.stream}"
        log = server.records.get(name)
        if log is None:
            text = f"stream not found: tenant={request.tenant_id} namespace={request.namespace} stream={request.stream}"
            return self.say(Error(message=text), end=True)
        number = request.subscription_id
        assert number is not None
        begin = {"earliest": server.oldest}.get(str(request.start), len(log))
        gap = None
        if isinstance(request.start, At):
            begin = wanted = request.start.offset
            if request.epoch not in (None, server.epoch) or wanted < server.oldest:
                if request.on_gap != "tell":
                    return self.say(
                        SubscribeCursorError(reason="too_old", requested=wanted, available=server.oldest), end=True
                    )
                begin = server.oldest
                gap = "recreated" if request.epoch not in (None, server.epoch) else "cap"
            elif wanted > len(log):
                return self.say(
                    SubscribeCursorError(reason="in_future", requested=wanted, available=len(log)), end=True
                )
        feed = ScriptedFeed(server, self.link.link, name, number)
        self.say(Subscribed(subscription_id=number, offset=begin, epoch=server.epoch), end=True)
        if gap:
            feed.gap(wanted, max(wanted, server.oldest - 1), gap)
        feed.send(begin, log[begin:])
        return None

    def _cache(self, request: CachePutRequest | CacheGetRequest) -> None:
        server = self.server
        number = request.request_id
        assert isinstance(number, int)
        if refusal := server.refuse(str(request.cache)):
            return self.say(Error(message=refusal, request_id=number), end=refusal == "forbidden")
        if server.holds_answers:
            return None
        if isinstance(request, CachePutRequest):
            server.values[request.key] = read_bytes(request.value)
            server.ttls[request.key] = request.ttl_ms if isinstance(request.ttl_ms, int) else None
            return self.say(CacheOk(request_id=number))
        value = server.values.get(request.key)
        return self.say(
            CacheValue(
                tenant_id=str(request.tenant_id),
                namespace=str(request.namespace),
                cache=str(request.cache),
                key=request.key,
                value=None if value is None else encode_text(value),
                request_id=number,
            )
        )


def encode_text(value: bytes) -> str:
    """Return bytes in base64."""
    from base64 import b64encode

    return b64encode(value).decode()


def shared_with_offsets(feed: ScriptedFeed, base: int, payloads: list[bytes]) -> bytes:
    """Return the frame of events that a node writes."""
    return write_events(EventBatch(payloads, None, base))


@asynccontextmanager
async def scripted_server(folder: Path, limits: TransportLimits | None = None) -> AsyncIterator[ScriptedServer]:
    """Yield a server on a free port, with the streams `orders` and `other` of the tenant `t1`."""
    made = ScriptedServer(folder)
    made.server = await listen(made, 0, limits)
    try:
        yield made
    finally:
        await made.server.close(0, "the test is over")


async def listen(made: ScriptedServer, port: int, limits: TransportLimits | None = None) -> QuicServer:
    """Return a listener of a server, also again on the same port."""
    return await QuicServer.listen(
        "127.0.0.1",
        port,
        made.certificate,
        made.accept,
        clock=SystemClock(),
        spec=limits or TransportLimits(),
        failed=lambda reason: None,
    )
