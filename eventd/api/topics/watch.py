"""Watching topics over HTTP: a session names the topics, and its streams send them as server-sent events."""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web
from aiohttp.http import HttpVersion11

from eventd.api.errors.codes import NotAcceptable
from eventd.api.framework.models import U32, U64, Body, NoQuery, Query, ResponseModel, require_u64
from eventd.api.listener.sending import ClientStream
from eventd.api.topics.calls import Call
from eventd.api.topics.checkpoints import ID_BYTES, Checkpoints, marked, write_places
from eventd.api.topics.client_stream import FollowedTopic, Follower, FollowerRegistry, WatchCursor
from eventd.api.topics.sessions import SESSION_SECONDS, Session, Sessions
from eventd.api.topics.shared_reads import Page
from eventd.api.topics.start import Beginning, From, Viewing, find_topics, require_some

RECORDS = 256
BYTES = 256 << 10
"""Maximum number of records of a page, and its approximate bytes, unless the client sets others."""
HEARTBEAT_MS = (1000, 60_000)
RETRY_MS = 2000
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class NewSession(Viewing, Body):
    """What to watch, and how. `consistency` makes no difference: readers always see what was written before their
    request."""

    topics: dict[str, From]
    limit: U32 = RECORDS
    max_batch_bytes: U64 = BYTES
    heartbeat_ms: U64 = 15_000
    consistency: Literal["eventual", "strong"] = "eventual"

    def __post_init__(self) -> None:
        require_u64(max_batch_bytes=self.max_batch_bytes, heartbeat_ms=self.heartbeat_ms)


class SessionBegun(ResponseModel):
    """A begun session. Without an open stream it ends after `session_ttl_ms`, or at a limit."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, Beginning]


class Lenience(Query, frozen=True):
    """`lenient`: missing topics are left out instead of refused."""

    lenient: bool = False


async def begin_session(call: Call[Lenience, NewSession]) -> SessionBegun:
    """Begin a session, which names the topics to follow (POST /v0/watch)."""
    asked, sessions = call.body, call.v0.part(Sessions)
    require_some(asked.topics)
    call.key.require_names(*asked.topics)
    found = await find_topics(call.v0, asked.topics, lenient=call.query.lenient)
    beginnings = {
        name: topic.begin(asked.topics[name], include_epoch=asked.include_epoch) for name, topic in found.items()
    }
    least, most = HEARTBEAT_MS
    session = sessions.begin(
        Session(
            key=call.key,
            topics={name: topic.topic_id for name, topic in found.items()},
            begun={
                name: WatchCursor(beginnings[name].from_seq, topic.epoch_of(asked.topics[name]))
                for name, topic in found.items()
            },
            pages=asked.pages(asked.limit or RECORDS, asked.max_batch_bytes or BYTES),
            heartbeat=min(max(asked.heartbeat_ms, least), most) / 1000,
        )
    )
    return SessionBegun(
        wid=session.wid,
        stream_url=f"/v0/watch/{session.wid}",
        session_ttl_ms=round(SESSION_SECONDS * 1000),
        topics=beginnings,
        performance=call.performance(),
    )


async def stream(call: Call[NoQuery, None]) -> web.StreamResponse:
    """Send the topics of a session as server-sent events (GET /v0/watch/{wid})."""
    request, v0 = call.request, call.v0
    require_stream(request)
    sessions, registry = v0.part(Sessions), v0.part(FollowerRegistry)
    session = sessions.find(request.match_info["wid"], call.key)
    await registry.forget_gone()
    with v0.serving.concurrency.streams.take(call.key), sessions.opening(session):
        present = await find_topics(v0, session.topics, lenient=True)
        response, client = await begin_stream(request)
        if client is None:
            return response
        number, wants, checkpoints = session.begin_stream(present, request.headers.get("Last-Event-ID", ""))
        chunked = request.version >= HttpVersion11
        follower = SseFollower(registry, client, session.heartbeat, chunked=chunked, checkpoints=checkpoints)
        follower.greet()
        for want, cursor in wants:
            follower.follow(want, cursor)
        with sessions.streaming(session, number, follower):
            await follower.run()
    return response


async def begin_stream(request: web.Request) -> tuple[web.StreamResponse, ClientStream | None]:
    """Begin a stream of events; return its response, and the stream to the client or None if it disconnected."""
    response = web.StreamResponse(headers=_HEADERS)
    writer = await response.prepare(request)
    if (transport := request.transport) is None or writer is None:
        return response, None
    return response, ClientStream(transport, writer)


def require_stream(request: web.Request) -> None:
    """Raises `NotAcceptable` for a client that does not accept a stream of events."""
    accept = request.headers.get("Accept", "")
    if accept and "text/event-stream" not in accept and "*/*" not in accept:
        raise NotAcceptable("this is a stream of events", hint="accept text/event-stream")


def event(kind: str, place: bytes, data: bytes) -> bytes:
    """Return one server-sent event with the id `place`. `data` is JSON, which contains no line breaks."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (place, kind.encode(), data)


def _is_marked(following: FollowedTopic, page: Page) -> bool:
    """Return whether a page is of another epoch than the one in which the session has begun its topic."""
    return following.before >= 0 or page.epoch not in ("", following.epoch)


def _record_data(page: Page) -> bytes:
    """Return the data of the `record` event, which is the same for all clients whatever other topics they follow."""
    if (data := page.texts.get(_record_data)) is None:
        begin, end, head = page.bounds
        data = f'{{"topic":"{page.name}",{begin},{head},"records":{page.records},{end}}}'.encode()
        page.texts[_record_data] = data
    return data


class SseFollower(Follower):
    """A client of a stream of server-sent events. `chunked`: with HTTP/1.1's transfer coding.

    `checkpoints` name its position, where that is too long for an id.
    """

    def __init__(
        self,
        registry: FollowerRegistry,
        client: ClientStream,
        heartbeat: float,
        *,
        chunked: bool,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(registry, client, heartbeat)
        self._chunked = chunked
        self._checkpoints = checkpoints

    def greet(self) -> None:
        """Send the delay after which the client reconnects if its stream breaks."""
        self.stream.write(self._chunk(b"retry: %d\n\n" % RETRY_MS))

    def cursors(self) -> dict[str, WatchCursor]:
        """Return by name how far the client was sent each topic."""
        return {
            name: WatchCursor(following.after, following.epoch, following.before)
            for name, following in self.topics.items()
        }

    def words(self, following: FollowedTopic, page: Page) -> bytes:
        """Return a page as events, empty without news; cached in the page for clients that follow only this topic."""
        key = (SseFollower, self._chunked, following.is_first, following.owes_end, _is_marked(following, page))
        alone = len(self.topics) == 1
        text = page.texts.get(key) if alone else None
        if text is None:
            text = self._chunk(b"".join(self._events(following, page)))
            if alone:
                page.texts[key] = text
        return text

    def _events(self, following: FollowedTopic, page: Page) -> list[bytes]:
        name = page.name
        if page.gone:
            deleted = {"topic": name, "head_seq": 0, "reason": "deleted"}
            return [event("topic-deleted", self._id(name, None), msgspec.json.encode(deleted))]
        events, is_marked = [], _is_marked(following, page)
        if (lost := page.tombstone) is not None:
            is_too_old = following.is_first and lost.reason != "recreated"
            loss = page.loss(lost, "from_seq_too_old" if is_too_old else "", epochs=following.feed.want.pages.epochs)
            events.append(event("tombstone", self._id(name, page.begins_after, is_marked), msgspec.json.encode(loss)))
        is_end = page.caught_up and (bool(events or page.records) or following.owes_end)
        place = self._id(name, page.upto, is_marked) if page.records or is_end else b""
        if page.records:
            events.append(event("record", place, _record_data(page)))
        if is_end:
            ended = msgspec.json.encode({"topic": name, "head_seq": page.head_seq})
            events.append(event("caught-up", place, ended))
        return events

    def _id(self, name: str, seq: int | None, is_marked: bool = False) -> bytes:
        """Return the id of an event that takes the client to `seq` of one topic; None: that topic no longer exists.

        Adds a checkpoint for a `seq` if the stream keeps them. `is_marked`: the seq is of another epoch than the start.
        """
        topics = self.topics.items()
        seqs = {name: marked(each.after) if each.before >= 0 else each.after for name, each in topics}
        if seq is None:
            seqs.pop(name, None)
        else:
            seqs[name] = marked(seq) if is_marked else seq
        if self._checkpoints is None:
            return write_places(seqs)
        checkpoint = self._checkpoints.last if seq is None else self._checkpoints.add(name, seq)
        whole = write_places(seqs)
        return whole if len(whole) <= ID_BYTES else checkpoint

    def heartbeat(self) -> bytes:
        return self._chunk(b": hb\n\n")

    def error(self, code: str, message: str) -> bytes:
        data = msgspec.json.encode({"code": code, "message": message})
        return self._chunk(event("error", self._id("", None), data))

    def _chunk(self, text: bytes) -> bytes:
        if not self._chunked or not text:
            return text
        return b"%x\r\n%b\r\n" % (len(text), text)
