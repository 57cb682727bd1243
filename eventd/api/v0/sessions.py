"""Sessions of watchers: which topics a client follows, how it wants them, and how far it was told.

They are kept in memory. A session outlives its streams for a while, so that a client can come back to where it was; a
client that keeps the id of the last event it saw can come back to there.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from eventd.api.auth import ApiKey
from eventd.api.v0.beginnings import MOST_SEQ, Found
from eventd.api.v0.routes import V0
from eventd.api.v0.shared import Pages, Want
from eventd.errors import NotFound, Unauthorized
from eventd.log.refusals import Throttled

SESSION_SECONDS = 300.0
"""How long a session is kept without a stream."""
_ID_BYTES = 16
_SEQS = msgspec.json.Decoder(dict[str, int])


def write_place(seqs: Mapping[str, int]) -> bytes:
    """Where a client stands in each of its topics, as the id of an event: base64url of a JSON object, by name."""
    return urlsafe_b64encode(msgspec.json.encode(dict(sorted(seqs.items())))).rstrip(b"=")


def read_place(text: str) -> dict[str, int]:
    """What `write_place` wrote; nothing for anything else."""
    try:
        found = _SEQS.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        return {}
    return {name: seq for name, seq in found.items() if 0 <= seq <= MOST_SEQ}


class Stream(Protocol):
    """One that is open on a session."""

    def places(self) -> Mapping[str, int]:
        """How far its client was told of each topic."""
        ...


@dataclass(slots=True)
class Session:
    """What a client wants to follow. `topics`: the ids, by name, of the topics as they were when it began.

    `seqs`: how far it was told of each when its last stream ended. `heartbeat` and `idle_since` in seconds.
    """

    key: ApiKey
    topics: dict[str, int]
    seqs: dict[str, int]
    pages: Pages
    heartbeat: float
    wid: str = ""
    idle_since: float = 0.0
    streams: list[Stream] = field(default_factory=list)

    def resume(self, present: Mapping[str, Found], last_event_id: str) -> Iterator[tuple[Want, int]]:
        """What a new stream is to tell, and from where, when these topics are `present`.

        It begins where the hindmost of the open streams is, or where the last one was. A client that says what it saw
        last may go back there, but not skip anything.
        """
        open_places = [stream.places() for stream in self.streams]
        seen = read_place(last_event_id)
        for name, seq in self.seqs.items():
            after = min([*(places.get(name, seq) for places in open_places)] or [seq])
            after = min(after, seen.get(name, after))
            if name in present and present[name].topic_id != self.topics[name]:
                self.topics[name] = present[name].topic_id
                after = MOST_SEQ  # of a topic that is no more: its name is another's, and the client is to learn that
            yield Want(self.topics[name], name, self.pages), after


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
        """Keep a session under an id that nobody can guess. Raises `Throttled`."""
        self._forget_idle()
        if 0 < self._most <= len(self._sessions):
            raise Throttled.by("max_watch_sessions", self._most)
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
    def streaming(self, session: Session, stream: Stream) -> Iterator[None]:
        """Keep the session while a stream is open, and then remember how far that came."""
        session.streams.append(stream)
        try:
            yield
        finally:
            session.seqs |= stream.places()
            session.streams.remove(stream)
            session.idle_since = self._clock.monotonic()

    def _forget_idle(self) -> None:
        old = self._clock.monotonic() - SESSION_SECONDS
        for session in [*self._sessions.values()]:
            if not session.streams and session.idle_since < old:
                del self._sessions[session.wid]
