"""Watching topics over HTTP: a session says what is wanted, and its streams of server-sent events tell it."""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web
from aiohttp.http import HttpVersion11

from eventd.api.errors.codes import NotAcceptable
from eventd.api.framework.models import U32, U64, Answer, Body, NoQuery, Query, require_u64
from eventd.api.topics.calls import Call
from eventd.api.topics.checkpoints import ID_BYTES, Checkpoints, write_places
from eventd.api.topics.client_stream import Follower, Following, Outlet, WatchCursor, Watching
from eventd.api.topics.sessions import SESSION_SECONDS, Session, Sessions
from eventd.api.topics.shared_reads import Portion
from eventd.api.topics.start import Beginning, From, Viewing, find_topics, require_some

RECORDS = 256
BYTES = 256 << 10
"""Of a page, if nothing else is asked for."""
HEARTBEAT_MS = (1000, 60_000)
RETRY_MS = 2000
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class NewSession(Viewing, Body):
    """What to watch, and how. `consistency` makes no difference: readers see what was written before they ask."""

    topics: dict[str, From]
    limit: U32 = RECORDS
    max_batch_bytes: U64 = BYTES
    heartbeat_ms: U64 = 15_000
    consistency: Literal["eventual", "strong"] = "eventual"

    def __post_init__(self) -> None:
        require_u64(max_batch_bytes=self.max_batch_bytes, heartbeat_ms=self.heartbeat_ms)


class SessionBegun(Answer):
    """The session. It is kept for `session_ttl_ms` while no stream is open."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, Beginning]


class Lenience(Query, frozen=True):
    """`lenient`: topics that are not there are left out, rather than refused."""

    lenient: bool = False


async def begin_session(call: Call[Lenience, NewSession]) -> SessionBegun:
    """POST /v0/watch."""
    asked, sessions = call.body, call.v0.part(Sessions)
    require_some(asked.topics)
    call.key.require_names(*asked.topics)
    found = await find_topics(call.v0, asked.topics, lenient=call.query.lenient)
    beginnings = {name: topic.begin(asked.topics[name]) for name, topic in found.items()}
    least, most = HEARTBEAT_MS
    session = sessions.begin(
        Session(
            key=call.key,
            topics={name: topic.topic_id for name, topic in found.items()},
            begun={name: WatchCursor(beginnings[name].from_seq, topic.epoch) for name, topic in found.items()},
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
    """GET /v0/watch/{wid}."""
    request, v0 = call.request, call.v0
    require_stream(request)
    sessions, watching = v0.part(Sessions), v0.part(Watching)
    session = sessions.find(request.match_info["wid"], call.key)
    await watching.forget_gone()
    with v0.concurrency.streams.take(call.key), sessions.opening(session):
        present = await find_topics(v0, session.topics, lenient=True)
        response, outlet = await begin_stream(request)
        if outlet is None:
            return response
        number, wants, checkpoints = session.begin_stream(present, request.headers.get("Last-Event-ID", ""))
        chunked = request.version >= HttpVersion11
        follower = SseFollower(watching, outlet, session.heartbeat, chunked=chunked, checkpoints=checkpoints)
        follower.greet()
        for want, cursor in wants:
            follower.follow(want, cursor)
        with sessions.streaming(session, number, follower):
            await follower.run()
    return response


async def begin_stream(request: web.Request) -> tuple[web.StreamResponse, Outlet | None]:
    """Begin a stream of events; without an outlet where the client has gone."""
    response = web.StreamResponse(headers=_HEADERS)
    writer = await response.prepare(request)
    if (transport := request.transport) is None or writer is None:
        return response, None
    return response, Outlet(transport, writer)


def require_stream(request: web.Request) -> None:
    """Raises `NotAcceptable` for a client that does not take a stream of events."""
    accept = request.headers.get("Accept", "")
    if accept and "text/event-stream" not in accept and "*/*" not in accept:
        raise NotAcceptable("this is a stream of events", hint="accept text/event-stream")


def event(kind: str, place: bytes, data: bytes) -> bytes:
    """One event of a stream. JSON has no line breaks of its own."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (place, kind.encode(), data)


def _record_data(portion: Portion) -> bytes:
    """The same for all clients, whatever else they follow."""
    if (data := portion.texts.get(_record_data)) is None:
        begin, end, head = portion.bounds
        data = f'{{"topic":"{portion.name}",{begin},{head},"records":{portion.records},{end}}}'.encode()
        portion.texts[_record_data] = data
    return data


class SseFollower(Follower):
    """A client of a stream of server-sent events. `chunked`: as HTTP/1.1 has it.

    `checkpoints` name where it stands, where that is too long for an id.
    """

    def __init__(
        self,
        watching: Watching,
        outlet: Outlet,
        heartbeat: float,
        *,
        chunked: bool,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(watching, outlet, heartbeat)
        self._chunked = chunked
        self._checkpoints = checkpoints

    def greet(self) -> None:
        """What comes first."""
        self.outlet.write(self._chunk(b"retry: %d\n\n" % RETRY_MS))

    def cursors(self) -> dict[str, WatchCursor]:
        """How far the client was told of each topic."""
        return {name: WatchCursor(following.after, following.epoch) for name, following in self.topics.items()}

    def words(self, following: Following, portion: Portion) -> bytes:
        """Clients of this topic alone that stand at the same place get the same bytes."""
        key = (SseFollower, self._chunked, following.is_first, following.owes_end)
        alone = len(self.topics) == 1
        text = portion.texts.get(key) if alone else None
        if text is None:
            text = self._chunk(b"".join(self._events(following, portion)))
            if alone:
                portion.texts[key] = text
        return text

    def _events(self, following: Following, portion: Portion) -> list[bytes]:
        name = portion.name
        if portion.gone:
            deleted = {"topic": name, "head_seq": 0, "reason": "deleted"}
            return [event("topic-deleted", self._id(name, None), msgspec.json.encode(deleted))]
        events = []
        if (lost := portion.tombstone) is not None:
            is_too_old = following.is_first and lost.reason != "recreated"
            told = portion.loss(lost, "from_seq_too_old" if is_too_old else "")
            events.append(event("tombstone", self._id(name, portion.begins_after), msgspec.json.encode(told)))
        is_end = portion.caught_up and (bool(events or portion.records) or following.owes_end)
        place = self._id(name, portion.upto) if portion.records or is_end else b""
        if portion.records:
            events.append(event("record", place, _record_data(portion)))
        if is_end:
            ended = msgspec.json.encode({"topic": name, "head_seq": portion.head_seq})
            events.append(event("caught-up", place, ended))
        return events

    def _id(self, name: str, seq: int | None) -> bytes:
        """The id of an event that takes the client to `seq` of one topic; None: that topic is no more."""
        seqs = {name: following.after for name, following in self.topics.items()}
        if seq is None:
            seqs.pop(name, None)
        else:
            seqs[name] = seq
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
