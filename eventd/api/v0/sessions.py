"""Sessions of watchers: which topics a client follows, how it wants them, and how far it was told.

They are kept in memory. A session outlives its streams for a while, so that a client can come back to where it was; a
client that keeps the id of the last event it saw can come back to there.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from eventd.api.auth import ApiKey
from eventd.api.v0.beginnings import Found
from eventd.api.v0.checkpoints import (
    MOVES,
    TOPIC_BYTES,
    Checkpoints,
    may_need_checkpoints,
    read_checkpoint,
    read_places,
)
from eventd.api.v0.following import WatchCursor
from eventd.api.v0.routes import V0
from eventd.api.v0.shared import Pages, Want
from eventd.errors import NotFound, Unauthorized
from eventd.log.refusals import Throttled

SESSION_SECONDS = 300.0
"""How long a session is kept without a stream."""
SESSIONS_BYTES = 256 << 20
"""What all sessions may take of memory, by estimate: one that follows 256 topics takes a hundred times what most do."""
ENDED_STREAMS = 4
"""Streams of a session whose checkpoints are kept after they have ended, beside those that are open."""
_ID_BYTES = 16


class Stream(Protocol):
    """One that is open on a session."""

    def cursors(self) -> Mapping[str, WatchCursor]:
        """How far its client was told of each topic."""
        ...


class StreamStart(NamedTuple):
    """What a new stream is to tell, and from where; `checkpoints` where its ids may be too long without them."""

    number: int
    wants: list[tuple[Want, WatchCursor]]
    checkpoints: Checkpoints | None


@dataclass(slots=True)
class Session:
    """What a client wants to follow. `topics`: the ids, by name, of the topics as they were when it began.

    `begun`: where its last stream began. What was written to a stream beyond that may never have reached the client:
    only an id that comes back proves it. `told`: the furthest that any of its streams has written.
    `heartbeat` and `idle_since` in seconds.
    """

    key: ApiKey
    topics: dict[str, int]
    begun: dict[str, WatchCursor]
    pages: Pages
    heartbeat: float
    wid: str = ""
    idle_since: float = 0.0
    streams: dict[int, Stream] = field(default_factory=dict)
    told: dict[str, WatchCursor] = field(init=False)
    _own_size: int = field(init=False)
    _first: dict[str, int] = field(init=False)
    _streams_begun: int = 0
    _checkpoints: dict[int, Checkpoints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.told = dict(self.begun)
        self._first = {name: cursor.seq for name, cursor in self.begun.items()}
        self._own_size = (
            1000 + sum(400 + len(name) for name in self.topics) + sum(100 + len(n) for n in self.pages.nodes)
        )

    @property
    def size(self) -> int:
        """Bytes of memory, by estimate."""
        return self._own_size + sum(kept.size for kept in self._checkpoints.values())

    @property
    def stream_size(self) -> int:
        """Bytes of memory that one more stream may come to need in the session, by estimate."""
        return TOPIC_BYTES * len(self.topics) + 10 * MOVES if may_need_checkpoints(self.topics) else 0

    def begin_stream(self, present: Mapping[str, Found], last_event_id: str) -> StreamStart:
        """Where a new stream begins, when these topics are `present`.

        A client that says what it saw last goes on from there; it cannot skip what it was never told. Without that it
        begins where the last stream did.
        """
        for stream in self.streams.values():
            self.note(stream)
        seen = self._seen(last_event_id)
        for name, told in self.told.items():
            if name in seen:
                self.begun[name] = told._replace(seq=min(told.seq, seen[name]))
        for name, found in present.items():
            self.topics[name] = found.topic_id
        self._streams_begun += 1
        checkpoints = None
        if may_need_checkpoints(self.topics):
            seqs = {name: cursor.seq for name, cursor in self.begun.items()}
            checkpoints = self._checkpoints[self._streams_begun] = Checkpoints(self._tag, self._streams_begun, seqs)
        wants = [(Want(self.topics[name], name, self.pages), cursor) for name, cursor in self.begun.items()]
        return StreamStart(self._streams_begun, wants, checkpoints)

    def note(self, stream: Stream) -> None:
        """Remember how far a stream has come, of each topic where that is furthest."""
        for name, cursor in stream.cursors().items():
            known = self.told[name]
            if cursor.epoch != known.epoch or cursor.seq > known.seq:
                self.told[name] = cursor

    def end_stream(self, number: int) -> None:
        """A stream has ended; how far it came stays known."""
        self.note(self.streams.pop(number))
        ended = [number for number in self._checkpoints if number not in self.streams]
        for old in ended[:-ENDED_STREAMS]:
            del self._checkpoints[old]

    def _seen(self, last_event_id: str) -> Mapping[str, int]:
        """Where the client stood after the event that it saw last; nothing of topics that its id does not tell of."""
        named = read_checkpoint(last_event_id)
        if named is None:
            return read_places(last_event_id)
        tag, number, count = named
        if tag != self._tag or not 1 <= number <= self._streams_begun:
            return {}
        kept = self._checkpoints.get(number)
        return self._first if kept is None else kept.places(count)

    @property
    def _tag(self) -> str:
        """What the ids of its checkpoints begin with: those of another session are nothing to this one."""
        return sha256(self.wid.encode()).hexdigest()[:12]


class Sessions:
    """The sessions of a node."""

    def __init__(self, v0: V0) -> None:
        self._clock = v0.clock
        self._random = v0.random
        self._most = v0.limits.max_watch_sessions
        self._prefix = v0.siblings.session_prefix
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, session: Session) -> Session:
        """Keep a session under an id that nobody can guess. Raises `Throttled`.

        Where there is no place left, a key that has more than this one loses sessions that are idle, the oldest first.
        """
        self._forget_idle()
        self._make_place("max_watch_sessions", self._most, session.key, 1, lambda _: 1)
        self._make_room(session.key, session.size)
        session.wid = self._prefix + urlsafe_b64encode(self._random(_ID_BYTES)).rstrip(b"=").decode()
        session.idle_since = self._clock.monotonic()
        self._sessions[session.wid] = session
        return session

    def find(self, wid: str, key: ApiKey) -> Session:
        """A session, for the key that it was made with. Raises `NotFound` and `Unauthorized`."""
        self._forget_idle()
        session = self._sessions.get(wid)
        if session is None:
            raise NotFound("there is no such session, or it has ended", hint="begin one with POST /v0/watch")
        if session.key.digest != key.digest:
            raise Unauthorized("this session was begun with another key")
        return session

    @contextmanager
    def streaming(self, session: Session, number: int, stream: Stream) -> Iterator[None]:
        """Keep the session while a stream is open, and then remember how far that came."""
        session.streams[number] = stream
        try:
            yield
        finally:
            session.end_stream(number)
            session.idle_since = self._clock.monotonic()

    def require_room(self, session: Session) -> None:
        """Have one more stream of the session fit into memory. Raises `Throttled`."""
        if coming := session.stream_size:
            self._make_room(session.key, coming)

    def _make_room(self, key: ApiKey, size: int) -> None:
        self._make_place("watch_sessions_bytes", SESSIONS_BYTES, key, size, lambda kept: kept.size)

    def _make_place(self, limit: str, most: int, asking: ApiKey, coming: int, cost: Callable[[Session], int]) -> None:
        """Have what comes of a key fit below a limit; 0 is none."""
        by_key: Counter[bytes] = Counter()
        for session in self._sessions.values():
            by_key[session.key.digest] += cost(session)
        over = by_key.total() + coming - most if most else 0
        if over <= 0:
            return
        (key, held), *_ = by_key.most_common(1)
        fair = by_key[asking.digest] + coming
        idle = (kept for kept in self._sessions.values() if kept.key.digest == key and not kept.streams)
        for session in sorted(idle, key=lambda kept: kept.idle_since):
            if over <= 0 or held <= fair:
                break
            del self._sessions[session.wid]
            over, held = over - cost(session), held - cost(session)
        if over > 0:
            raise Throttled.by(limit, most)

    def _forget_idle(self) -> None:
        old = self._clock.monotonic() - SESSION_SECONDS
        for session in [*self._sessions.values()]:
            if not session.streams and session.idle_since < old:
                del self._sessions[session.wid]
