"""Topics over a WebSocket: one connection on which a client follows topics and publishes to them.

Each text frame is a JSON object. The client names the operation in `op`, and may add a `request_id` of any type, which
the response repeats. Publishes are written and acknowledged in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web
from msgspec import UNSET, Raw, Struct, UnsetType

from eventd.api.bodies.bodies import BodyReservation
from eventd.api.errors.codes import TOPICS_FORM, Internal, internal
from eventd.api.framework.decoding import decode
from eventd.api.framework.models import U32, U64, NoQuery, Performance, require_u64
from eventd.api.keys.api_key import ApiKey
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.sending import PING, ClientStream, text_frame
from eventd.api.listener.web_sockets import MAX_MESSAGE_BYTES, open_socket
from eventd.api.topics.calls import V0, Call
from eventd.api.topics.client_stream import FollowedTopic, Follower, FollowerRegistry
from eventd.api.topics.shared_reads import Page, TopicRequest
from eventd.api.topics.start import From, Viewing, begin_topics, find_topics, require_some
from eventd.api.topics.write import WriteBody, shown, write
from eventd.errors import EventdError, Invalid
from eventd.log.core.commit import GROUP_RECORDS
from eventd.log.topics.errors import Throttled

RECORDS = 1000
BYTES = 1 << 20
"""Maximum number of records of a page, and its approximate bytes, by default."""
MOST_FOLLOWED = 4096
"""The most topics that one connection may follow."""
LARGE_BYTES = 900_000
"""A batch of this size may be decoded in a thread, or be written in a transaction of large batches."""
UNDER_WAY = 64
"""Maximum number of publishes of one client that wait for the disk at the same time."""
AT_ONCE = 50
"""Maximum number of frames of one client that are read before the event loop turns to other work."""
SILENT_SECONDS = 15.0
"""After this time without a page sent to it, a client is pinged, which detects a dead connection."""
_NO_ID = Raw(b"null")
logger = logging.getLogger("eventd.api")


class Command(Struct):
    """The members of every frame of a client; `request_id` is optional."""

    op: str
    request_id: Raw = _NO_ID


class Subscribe(Viewing, kw_only=True):
    """Follow topics: `topic` after `from_seq` of an `epoch`, or from its end; each of `topics` from its own position.

    Following a topic again replaces its position. `lenient`: missing topics are left out.
    """

    topic: str | None = None
    topics: dict[str, From] | None = None
    from_seq: U64 = 0
    tail: bool = False
    epoch: str | None = None
    limit: U32 = RECORDS
    max_batch_bytes: U64 = BYTES
    lenient: bool = False

    def __post_init__(self) -> None:
        require_u64(from_seq=self.from_seq, max_batch_bytes=self.max_batch_bytes)

    def beginnings(self) -> dict[str, From]:
        """Return by name the start in each topic."""
        single = From(from_seq=self.from_seq, tail=self.tail, epoch=self.epoch)
        return ({} if self.topic is None else {self.topic: single}) | (self.topics or {})


class Unsubscribe(Struct, kw_only=True):
    """Stop following these topics."""

    topic: str | None = None
    topics: list[str] | None = None

    def names(self) -> list[str]:
        """Return the topics, each once."""
        single = [] if self.topic is None else [self.topic]
        return [*dict.fromkeys(single + (self.topics or []))]


class Publish(WriteBody, kw_only=True):
    """Write a batch to a topic."""

    topic: str
    return_seqs: bool = True


class CommandRefusal(Struct, kw_only=True):
    """Why a command was refused."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class InvalidJson(Invalid):
    """A frame is not valid JSON."""

    code = "invalid_json"


class UnsupportedMessage(Invalid):
    """A frame is not text."""

    code = "unsupported_message"


def server_frame(op: str, **members: Any) -> bytes:
    """Return a server message as a frame."""
    return text_frame(msgspec.json.encode({"op": op, **members}))


async def serve(call: Call[NoQuery, None]) -> web.StreamResponse:
    """Serve a client over a WebSocket (GET /v0/ws)."""
    request, v0 = call.request, call.v0
    key = v0.serving.callers.identify(request)
    registry = v0.part(FollowerRegistry)
    await registry.end_disconnected()
    most = min(v0.limits.max_body_bytes, MAX_MESSAGE_BYTES)
    socket, messages = open_socket(request, v0.serving.concurrency.bodies, key.digest, most)
    with v0.serving.concurrency.streams.take(key), v0.serving.callers.using(request, key), closing(messages):
        writer = await socket.prepare(request)
        if (transport := request.transport) is None:
            return socket  # the client disconnected
        follower = WsFollower(registry, ClientStream(transport, writer, socket), SILENT_SECONDS)
        await Conversation(v0, key, socket, messages, follower).run()
        messages.close()
        await socket.linger()
    return socket


class WsFollower(Follower):
    """A client of a WebSocket. It stays connected while it follows nothing."""

    stays = True

    def words(self, following: FollowedTopic, page: Page) -> bytes:
        """Return a page as frames, empty without news; cached in the page for its other clients."""
        key = (WsFollower, following.owes_end)
        text = page.texts.get(key)
        if text is None:
            text = page.texts[key] = b"".join(_frames(following, page))
        return text

    def heartbeat(self) -> bytes:
        return PING

    def error(self, code: str, message: str) -> bytes:
        return server_frame("error", code=code, message=message)


def _frames(following: FollowedTopic, page: Page) -> list[bytes]:
    name, head = page.name, page.head_seq
    if page.is_deleted:
        return [server_frame("topic_deleted", topic=name, head_seq=0, reason="deleted")]
    frames = []
    if page.tombstone is not None:
        frames.append(server_frame("tombstone", **page.loss(page.tombstone, epochs=following.feed.want.pages.epochs)))
    if page.records:
        begin, end, newest = page.bounds
        text = f'{{"op":"record","topic":"{name}",{begin},{end},{newest},"records":{page.records}}}'
        frames.append(text_frame(text.encode()))
    if page.caught_up and (frames or following.owes_end):
        frames.append(server_frame("caught_up", topic=name, head_seq=head))
    return frames


class Conversation:
    """One connection: commands are executed in order, only publishes overlap; the client is sent what it follows."""

    def __init__(
        self,
        v0: V0,
        key: ApiKey,
        socket: web.WebSocketResponse,
        messages: IncomingMessages,
        follower: WsFollower,
    ) -> None:
        self._v0 = v0
        self._key = key
        self._socket = socket
        self._messages = messages
        self._follower = follower
        self._heard = 0
        self._publishing: set[asyncio.Task[None]] = set()
        self._large = False  # whether the last publish was a large batch
        self._ending: set[asyncio.Task[bool]] = set()
        self._held: BodyReservation | None = None  # by the message that is handled
        self._commands: dict[str, Callable[[str, Raw], Awaitable[None]]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "publish": self._publish,
            "ping": self._ping,
        }

    async def run(self) -> None:
        """Serve until the client disconnects or is refused, or the node stops."""
        telling = self._v0.supervisor.spawn(self._follow(), "sending over a WebSocket")
        self._messages.attend(self._turn_away)
        try:
            async for message in self._socket:
                if self._messages.refusal is not None:
                    break  # the memory of this message may already belong to another
                self._held = self._messages.take()
                try:
                    await self._hear(message)
                    self._messages.allow_giving_way(self._held)
                    await self._follower.stream.drain()  # a client that does not read responses gets no more of them
                finally:
                    self._messages.handled()
                    self._messages.release(self._held)
        except ConnectionError:
            pass  # the client disconnected
        finally:
            self._follower.end()
            await asyncio.wait({telling, *self._publishing, *self._ending})

    def _turn_away(self, error: EventdError) -> None:
        """Answer an arriving message with an error, and close the connection: nothing that follows can be read."""
        self._refuse(_NO_ID, error)
        self._follower.stream.send_last(b"")  # a client that does not read ends as well
        # Runs once: on any error the connection ends.
        ending = self._socket.close(code=WSCloseCode.TRY_AGAIN_LATER, drain=False)
        self._ending.add(self._v0.supervisor.spawn(ending, "close of a WebSocket after a refused message"))

    async def _follow(self) -> None:
        """Send what the client follows. Runs once: if it fails, the connection ends, and the client reconnects."""
        try:
            await self._follower.run()
            await self._socket.close(code=WSCloseCode.GOING_AWAY)
        except ConnectionError:
            pass  # the client disconnected
        except Exception:
            self._follower.stream.abort()
            raise

    async def _hear(self, message: Any) -> None:
        request_id = _NO_ID
        try:
            if message.type is not WSMsgType.TEXT:
                raise UnsupportedMessage("only text frames are read", hint="send JSON as text")
            command = _read_command(message.data)
            request_id = command.request_id
            perform = self._commands.get(command.op)
            if perform is None:
                raise Invalid(f"{command.op[:40]!r} is not a valid op", hint=f"use one of {', '.join(self._commands)}")
            if perform != self._publish:
                await self._settle()
            await perform(message.data, request_id)
        except EventdError as error:
            self._refuse(request_id, error)
        except Exception:
            self._fail(request_id)
        self._heard += 1
        if not self._heard % AT_ONCE:  # arrived frames are read, and usually answered, without waiting
            await self._v0.clock.sleep(0)

    def _refuse(self, request_id: Raw, error: EventdError) -> None:
        detail = getattr(error, "detail", None) or UNSET
        refusal = CommandRefusal(code=TOPICS_FORM.code(error), message=str(error), detail=detail)
        self._send("error", request_id, **msgspec.to_builtins(refusal))

    def _fail(self, request_id: Raw) -> None:
        incident = self._v0.log.chance.token(4).hex()
        logger.exception("command failed", extra={"incident": incident})
        self._send("error", request_id, code=Internal.code, message=str(internal(incident)))

    def _send(self, op: str, request_id: Raw, **members: Any) -> None:
        self._follower.stream.write(server_frame(op, request_id=request_id, **members))

    async def _settle(self) -> None:
        """Wait until all earlier publishes are finished, so that the next command sees their records."""
        if self._publishing:
            await asyncio.wait(self._publishing)

    async def _subscribe(self, text: str, request_id: Raw) -> None:
        self._key.require_scope("read")
        asked = decode(text.encode(), Subscribe)
        beginnings = asked.beginnings()
        require_some(beginnings)
        self._key.require_names(*beginnings)
        found = await find_topics(self._v0, beginnings, lenient=asked.lenient)
        if len(self._follower.topics.keys() | found.keys()) > MOST_FOLLOWED:
            raise Throttled.by("max_topics_per_connection", MOST_FOLLOWED)
        begun, cursors = begin_topics(found, beginnings, include_epoch=asked.include_epoch)
        self._send("subscribed", request_id, topics=begun)
        pages = asked.pages(asked.limit or RECORDS, asked.max_batch_bytes or BYTES)
        for name, topic in found.items():
            self._follower.follow(TopicRequest(topic.topic_id, name, pages), cursors[name])

    async def _unsubscribe(self, text: str, request_id: Raw) -> None:
        names = decode(text.encode(), Unsubscribe).names()
        require_some(names)
        for name in names:
            self._follower.leave(name)
        self._send("unsubscribed", request_id, topics=names)

    async def _ping(self, text: str, request_id: Raw) -> None:
        self._send("pong", request_id)

    async def _publish(self, text: str, request_id: Raw) -> None:
        self._key.require_scope("write")
        body = text.encode()
        asked = decode(body, Publish)
        self._key.require_names(asked.topic)
        if asked.config is not None:
            self._key.require_scope("admin")
        large, follows = len(body) >= LARGE_BYTES or len(asked.records) >= GROUP_RECORDS, self._large
        self._large = large
        # Large batches are decoded in threads and written apart from small ones, which would overtake them. With a
        # `config`, the topic's existence is checked before the write.
        if large or follows or asked.config is not None:
            await self._settle()
        elif len(self._publishing) >= UNDER_WAY:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
        # Runs once: any error is answered.
        held, self._held = self._held, None
        publishing = self._v0.supervisor.spawn(self._write(asked, request_id), "publish over a WebSocket")
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        publishing.add_done_callback(lambda _: self._messages.release(held))

    async def _write(self, asked: Publish, request_id: Raw) -> None:
        begun = self._v0.clock.monotonic()
        try:
            written = await write(self._v0, self._key, asked.topic, asked)
        except EventdError as error:
            self._refuse(request_id, error)
            return
        except Exception:
            self._fail(request_id)
            return
        elapsed = round((self._v0.clock.monotonic() - begun) * 1000, 3)
        performance = Performance(server_total_ms=elapsed)
        answer = shown(asked.topic, written, performance, seqs=asked.return_seqs)
        self._send("ack", request_id, **{"seqs": None, **msgspec.to_builtins(answer)})


def _read_command(text: str) -> Command:
    try:
        return msgspec.json.decode(text, type=Command)
    except msgspec.ValidationError as error:
        raise Invalid(f"the frame is not a valid command: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJson(f"the frame is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
