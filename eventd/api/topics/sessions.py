"""Watch sessions: the topics that a client follows, in which form, and up to which records they were sent.

Sessions are kept in memory. A session outlives its streams for a while, so that a client can resume: after the event
whose id it sends, or else where its last stream began.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from eventd.api.keys.api_key import ApiKey
from eventd.api.topics.calls import V0
from eventd.api.topics.checkpoints import (
    MOVE_BYTES,
    MOVES,
    TOPIC_BYTES,
    Checkpoints,
    EventPlace,
    may_need_checkpoints,
    read_checkpoint,
    read_places,
)
from eventd.api.topics.client_stream import WatchCursor
from eventd.api.topics.shared_reads import PageOptions, TopicRequest
from eventd.api.topics.start import TopicSnapshot
from eventd.api.topics.topic_progress import EPOCH_BYTES, TopicProgress
from eventd.errors import NotFound, Unauthorized
from eventd.log.topics.errors import Throttled

SESSION_SECONDS = 300.0
"""How long a session is kept without a stream."""
SESSIONS_BYTES = 256 << 20
"""The most memory of all sessions, estimated: one that follows 256 topics takes a hundred times as much as most."""
ENDED_STREAMS = 4
"""The most ended streams of a session whose checkpoints are kept, besides the open ones."""
_ID_BYTES = 16


class Stream(Protocol):
    """The method used here of an open stream of a session."""

    def cursors(self) -> Mapping[str, WatchCursor]:
        """Return, by topic name, the position up to which the topic was sent to the client."""
        ...


class StreamStart(NamedTuple):
    """The number, topics and cursors of a new stream; `checkpoints` is None if its event ids can hold all places."""

    number: int
    wants: list[tuple[TopicRequest, WatchCursor]]
    checkpoints: Checkpoints | None


@dataclass(slots=True)
class Session:
    """What a client follows. `topics`: the topic ids by name, as they were when its last stream began.

    `progress`: up to which record its streams have sent each topic. `heartbeat` and `idle_since` in seconds. `open`:
    how many streams are open or about to be; `streams`: the open ones by number. `counted`: the size that `Sessions`
    has counted.
    """

    key: ApiKey
    topics: dict[str, int]
    progress: dict[str, TopicProgress]
    pages: PageOptions
    heartbeat: float
    wid: str = ""
    idle_since: float = 0.0
    open: int = 0
    counted: int = 0
    streams: dict[int, Stream] = field(default_factory=dict)
    stream_size: int = field(init=False)
    """Estimated memory in bytes that a stream may need in the session."""
    _own_size: int = field(init=False)
    _streams_begun: int = 0
    _checkpoints: dict[int, Checkpoints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs_checkpoints = may_need_checkpoints(self.topics)
        self.stream_size = TOPIC_BYTES * len(self.topics) + MOVE_BYTES * MOVES if needs_checkpoints else 0
        self._own_size = (
            1000 + sum(400 + len(name) for name in self.topics) + sum(100 + len(n) for n in self.pages.nodes)
        )

    @property
    def size(self) -> int:
        """Return the estimated memory in bytes: for an open stream, all that its checkpoints may need."""
        ended = sum(kept.size for number, kept in self._checkpoints.items() if number not in self.streams)
        epochs = EPOCH_BYTES * sum(progress.further_epochs for progress in self.progress.values())
        return self._own_size + epochs + self.open * self.stream_size + ended

    def begin_stream(self, present: Mapping[str, TopicSnapshot], last_event_id: str) -> StreamStart:
        """Begin a new stream, and return its start; `present`: the session's topics that exist now.

        A client that sends its last event id continues after it; it cannot skip what it was never sent. Without an id
        the stream begins where the last one did.
        """
        for stream in self.streams.values():
            self.note(stream)
        for name, place in self._seen(last_event_id).items():
            if (progress := self.progress.get(name)) is not None:
                progress.continue_after(place)
        for name, found in present.items():
            self.topics[name] = found.topic_id
        self._streams_begun += 1
        checkpoints = None
        if self.stream_size:
            begun = {name: progress.stream_start for name, progress in self.progress.items()}
            checkpoints = self._checkpoints[self._streams_begun] = Checkpoints(self._tag, self._streams_begun, begun)
        wants = [
            (TopicRequest(self.topics[name], name, self.pages), progress.begun)
            for name, progress in self.progress.items()
        ]
        return StreamStart(self._streams_begun, wants, checkpoints)

    def epoch_number(self, name: str, epoch: str) -> int:
        """Return the number by which event ids name an epoch of a topic."""
        return self.progress[name].number_of(epoch)

    def note(self, stream: Stream) -> None:
        """Note the position that a stream has reached in each topic."""
        for name, cursor in stream.cursors().items():
            self.progress[name].note(cursor)

    def end_stream(self, number: int) -> None:
        """Note the progress of a stream that has ended; only the last `ENDED_STREAMS` keep their checkpoints."""
        self.note(self.streams.pop(number))
        ended = [number for number in self._checkpoints if number not in self.streams]
        for old in ended[:-ENDED_STREAMS]:
            del self._checkpoints[old]

    def _seen(self, last_event_id: str) -> Mapping[str, EventPlace]:
        """Return by topic name the places that a client had reached at this event; empty for an unknown id.

        If the checkpoints of its stream are no longer kept, they are those at the start of the session.
        """
        named = read_checkpoint(last_event_id)
        if named is None:
            return read_places(last_event_id)
        tag, number, count = named
        if tag != self._tag or not 1 <= number <= self._streams_begun:
            return {}
        kept = self._checkpoints.get(number)
        if kept is None:
            return {name: progress.start for name, progress in self.progress.items()}
        return kept.places(count)

    @property
    def _tag(self) -> str:
        """Return the prefix of this session's checkpoint ids, by which those of another session are ignored."""
        return sha256(self.wid.encode()).hexdigest()[:12]


class _Quota(NamedTuple):
    """A limit and its use: of `most` (0: unlimited), all sessions together use `taken`, and a request needs `coming`
    more.

    `cost` returns what one session uses.
    """

    limit: str
    most: int
    taken: int
    coming: int
    cost: Callable[[Session], int]


class Sessions:
    """The watch sessions of this process; idle ones end after `SESSION_SECONDS`, or at a limit."""

    def __init__(self, v0: V0) -> None:
        self._clock = v0.clock
        self._random = v0.log.chance.token
        self._most = v0.limits.max_watch_sessions
        self._prefix = v0.serving.workers.session_prefix
        self._sessions: dict[str, Session] = {}
        self._bytes = 0  # the values that were counted

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, session: Session) -> Session:
        """Keep a session under an unguessable id. Raises `Throttled`.

        At a limit, the key with the most sessions, or the most memory for them, loses idle ones, the longest idle
        first, as long as it has more than the key of the new session would then have.
        """
        self._forget_idle()
        number = _Quota("max_watch_sessions", self._most, len(self._sessions), 1, lambda _: 1)
        self._make_room(session.key, number, self._memory(session.size))
        session.wid = self._prefix + urlsafe_b64encode(self._random(_ID_BYTES)).rstrip(b"=").decode()
        session.idle_since = self._clock.monotonic()
        self._sessions[session.wid] = session
        self._count(session)
        return session

    def find(self, wid: str, key: ApiKey) -> Session:
        """Return a session. Raises `NotFound`, and `Unauthorized` for another key than the one that created it."""
        self._forget_idle()
        session = self._sessions.get(wid)
        if session is None:
            raise NotFound("this session does not exist, or has ended", hint="begin one with POST /v0/watch")
        if session.key.digest != key.digest:
            raise Unauthorized("this session belongs to another key")
        return session

    @contextmanager
    def streaming(self, session: Session, number: int, stream: Stream) -> Iterator[None]:
        """Keep a stream among the open ones of its session while the block runs; then note its progress."""
        session.streams[number] = stream
        try:
            yield
        finally:
            session.end_stream(number)

    @contextmanager
    def opening(self, session: Session) -> Iterator[None]:
        """Protect the session from ending, and reserve the memory for one more stream, while the block runs.

        Raises `Throttled`.
        """
        if session.stream_size:
            self._make_room(session.key, self._memory(session.stream_size), but=session)
        session.open += 1
        self._count(session)
        try:
            yield
        finally:
            session.open -= 1
            session.idle_since = self._clock.monotonic()
            self._count(session)

    def _memory(self, coming: int) -> _Quota:
        return _Quota("watch_sessions_bytes", SESSIONS_BYTES, self._bytes, coming, lambda kept: kept.counted)

    def _make_room(self, asking: ApiKey, *claims: _Quota, but: Session | None = None) -> None:
        """End idle sessions so that a key's request fits all limits. Raises `Throttled`, and ends none, if it cannot.

        `but`: the request belongs to this session, which must not be ended for it.
        """
        leaving: dict[str, Session] = {}
        for claim in claims:
            self._choose(asking, claim, leaving, but)
        for session in leaving.values():
            self._end(session)

    def _choose(self, asking: ApiKey, claim: _Quota, leaving: dict[str, Session], but: Session | None) -> None:
        """Add to `leaving` the idle sessions that must end for one limit. Raises `Throttled`."""
        over = claim.taken - sum(map(claim.cost, leaving.values())) + claim.coming - claim.most
        if over <= 0 or not claim.most:
            return
        staying = [kept for kept in self._sessions.values() if kept.wid not in leaving]
        by_key: Counter[bytes] = Counter()
        for kept in staying:
            by_key[kept.key.digest] += claim.cost(kept)
        fair = by_key[asking.digest] + claim.coming
        (key, held), *_ = by_key.most_common(1) or [(b"", 0)]
        idle = (kept for kept in staying if kept.key.digest == key and not kept.open and kept is not but)
        for kept in sorted(idle, key=lambda kept: kept.idle_since):
            if over <= 0 or held <= fair:
                break
            leaving[kept.wid] = kept
            over, held = over - claim.cost(kept), held - claim.cost(kept)
        if over > 0:
            raise Throttled.by(claim.limit, claim.most)

    def _count(self, session: Session) -> None:
        """Update the total memory after the size of one session may have changed."""
        self._bytes += session.size - session.counted
        session.counted = session.size

    def _end(self, session: Session) -> None:
        del self._sessions[session.wid]
        self._bytes -= session.counted

    def _forget_idle(self) -> None:
        old = self._clock.monotonic() - SESSION_SECONDS
        for session in [*self._sessions.values()]:
            if not session.open and session.idle_since < old:
                self._end(session)
