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
from eventd.api.topics.checkpoints import ID_BYTES, Checkpoints, EventPlace, write_places
from eventd.api.topics.client_stream import FollowedTopic, Follower, FollowerRegistry, WatchCursor
from eventd.api.topics.sessions import SESSION_SECONDS, Session, Sessions
from eventd.api.topics.shared_reads import Page
from eventd.api.topics.start import Beginning, From, Viewing, begin_topics, find_topics, require_some
from eventd.api.topics.topic_progress import TopicProgress

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
    beginnings, cursors = begin_topics(found, asked.topics, include_epoch=asked.include_epoch)
    least, most = HEARTBEAT_MS
    session = sessions.begin(
        Session(
            key=call.key,
            topics={name: topic.topic_id for name, topic in found.items()},
            progress={name: TopicProgress(cursor) for name, cursor in cursors.items()},
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
    await registry.end_disconnected()
    with v0.serving.concurrency.streams.take(call.key), sessions.opening(session):
        present = await find_topics(v0, session.topics, lenient=True)
        response, client = await begin_stream(request)
        if client is None:
            return response
        number, wants, checkpoints = session.begin_stream(present, request.headers.get("Last-Event-ID", ""))
        chunked = request.version >= HttpVersion11
        follower = WatchFollower(registry, client, session, chunked=chunked, checkpoints=checkpoints)
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


def _record_data(page: Page) -> bytes:
    """Return the data of the `record` event, which is the same for all clients whatever other topics they follow."""
    if (data := page.texts.get(_record_data)) is None:
        begin, end, head = page.bounds
        data = f'{{"topic":"{page.name}",{begin},{head},"records":{page.records},{end}}}'.encode()
        page.texts[_record_data] = data
    return data


class SseFollower(Follower):
    """A client of a stream of server-sent events. `chunked`: with HTTP/1.1's transfer coding."""

    def __init__(self, registry: FollowerRegistry, client: ClientStream, heartbeat: float, *, chunked: bool) -> None:
        super().__init__(registry, client, heartbeat)
        self._chunked = chunked

    def greet(self) -> None:
        """Send the delay after which the client reconnects if its stream breaks."""
        self.stream.write(self._chunk(b"retry: %d\n\n" % RETRY_MS))

    def heartbeat(self) -> bytes:
        return self._chunk(b": hb\n\n")

    def _chunk(self, text: bytes) -> bytes:
        if not self._chunked or not text:
            return text
        return b"%x\r\n%b\r\n" % (len(text), text)


class WatchFollower(SseFollower):
    """A client of a stream of a watch session.

    `checkpoints` name its places, where these are too long for an id.
    """

    def __init__(
        self,
        registry: FollowerRegistry,
        client: ClientStream,
        session: Session,
        *,
        chunked: bool,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(registry, client, session.heartbeat, chunked=chunked)
        self._session = session
        self._checkpoints = checkpoints

    def cursors(self) -> dict[str, WatchCursor]:
        """Return by name how far the client was sent each topic."""
        return {name: WatchCursor(following.after, following.epoch) for name, following in self.topics.items()}

    def words(self, following: FollowedTopic, page: Page) -> bytes:
        """Return a page as events, empty without news; cached in the page for clients that follow only this topic."""
        epoch = self._session.epoch_number(page.name, page.epoch or following.epoch)
        key = (WatchFollower, self._chunked, following.is_first, following.owes_end, epoch)
        alone = len(self.topics) == 1
        text = page.texts.get(key) if alone else None
        if text is None:
            text = self._chunk(b"".join(self._events(following, page, epoch)))
            if alone:
                page.texts[key] = text
        return text

    def _events(self, following: FollowedTopic, page: Page, epoch: int) -> list[bytes]:
        name = page.name
        if page.is_deleted:
            deleted = {"topic": name, "head_seq": 0, "reason": "deleted"}
            return [event("topic-deleted", self._id(name, None), msgspec.json.encode(deleted))]
        events = []
        if (lost := page.tombstone) is not None:
            is_too_old = following.is_first and lost.reason != "recreated"
            loss = page.loss(lost, "from_seq_too_old" if is_too_old else "", epochs=following.feed.want.pages.epochs)
            place = EventPlace(epoch, page.begins_after)
            events.append(event("tombstone", self._id(name, place), msgspec.json.encode(loss)))
        is_end = page.caught_up and (bool(events or page.records) or following.owes_end)
        event_id = self._id(name, EventPlace(epoch, page.upto)) if page.records or is_end else b""
        if page.records:
            events.append(event("record", event_id, _record_data(page)))
        if is_end:
            ended = msgspec.json.encode({"topic": name, "head_seq": page.head_seq})
            events.append(event("caught-up", event_id, ended))
        return events

    def _id(self, name: str, place: EventPlace | None) -> bytes:
        """Return the id of an event that takes the client to a place in one topic; None: that topic no longer exists.

        Adds a checkpoint for a `place` if the stream keeps them.
        """
        number_of = self._session.epoch_number
        places = {each.name: EventPlace(number_of(each.name, each.epoch), each.after) for each in self.topics.values()}
        if place is None:
            places.pop(name, None)
        else:
            places[name] = place
        if self._checkpoints is None:
            return write_places(places)
        checkpoint = self._checkpoints.last if place is None else self._checkpoints.add(name, place)
        whole = write_places(places)
        return whole if len(whole) <= ID_BYTES else checkpoint

    def error(self, code: str, message: str) -> bytes:
        data = msgspec.json.encode({"code": code, "message": message})
        return self._chunk(event("error", self._id("", None), data))
