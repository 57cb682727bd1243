"""One stream of a client: its frames, authentication, and the order in which requests are taken.

Frames have no tasks of their own: publishes become units of the log, and the completion of a unit fills in the answer.
A stream that must wait takes no further frames; what still arrives counts in the connection's budget.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from eventd.api.quic import answers
from eventd.api.quic.context import ConnectionContext, HeldPlace
from eventd.api.quic.interfaces import AuthFailed, Channel, ClientGrant, NoPlace
from eventd.api.quic.message_requests import MessageRequests
from eventd.api.quic.options import AUTH_SECONDS, MOST_UNANSWERED, UNPROVEN_FRAME_BYTES
from eventd.api.quic.publish_requests import PublishRequests
from eventd.api.quic.stream_state import HANDLED, StreamPhase, StreamState
from eventd.streams.frames import HEADER_BYTES, KNOWN, BadFrame, Flags, Frame, StreamFrameReader
from eventd.streams.messages import (
    AuthOk,
    AuthRequest,
    BadMessage,
    Error,
    Ok,
    PublishBatchRequest,
    PublishRequest,
    read_message,
)

EXTENSIONS: Final = frozenset(("gap", "session", "receipt"))
LONGEST_SESSION: Final = 64
_PUBLISH: Final = int(Flags.PUBLISH)  # plain numbers are compared faster
_ACKNOWLEDGED: Final = int(Flags.ACKNOWLEDGED)
MOST_FRAMES: Final = 256
"""Number of frames of one stream that are handled in a row before other streams get their turn."""
MOST_READY: Final = 64 << 10
"""Number of bytes of unwritten answers from which on no further frame of that stream is handled."""
MOST_COMMAS: Final = 80_000
"""Maximum number of commas in a message: one with more would have far too many records, and is refused before it is
decoded."""

logger = logging.getLogger("eventd.streams")


class RequestStream:
    """A stream that the client has opened; `closed` is called with it once, when it is over."""

    def __init__(
        self, connection: ConnectionContext, channel: Channel, closed: Callable[[RequestStream], None]
    ) -> None:
        self.state = StreamState(connection, channel, self.resume)
        self.state.when_finished(self._over)
        self._closed = closed
        self._server = connection.server
        self._clock = self._server.clock
        self._opened_at = self._clock.monotonic()
        self._reader = StreamFrameReader(UNPROVEN_FRAME_BYTES)
        self._publishes = PublishRequests(self.state)
        self._messages = MessageRequests(self.state)
        self._server.metrics.stream_opened("publish" if channel.is_unidirectional else "request")
        self._place: HeldPlace | None = None
        self._task: asyncio.Task[None] | None = None
        self._held_frame: Frame | None = None
        self._peer_has_ended = False
        self._is_deaf = False
        """Whether the client does not read answers."""
        self._is_full = False
        """Whether the client has to read answers before it gets more."""
        self._is_running = False
        self._is_due = False

    # --- events of the stream

    def received(self, data: bytes, *, ended: bool) -> None:
        """Take bytes of the client."""
        if self.state.phase in (StreamPhase.CLOSING, StreamPhase.OVER):
            return
        self._peer_has_ended = self._peer_has_ended or ended
        if data:
            self.state.take(len(data))
            self._reader.add(data)
        self._run()
        self.state.connection.check_memory()

    def was_reset(self, code: int) -> None:
        """Drop the incomplete next frame; requests that arrived before are still answered."""
        self._discard()
        self._peer_has_ended = True
        self._run()

    def was_stopped(self, code: int) -> None:
        """End the stream if an answer is due, or with its next answer: the client reads none."""
        self._is_deaf = True
        if len(self.state.answers):
            self.state.finish()

    def has_room(self) -> None:
        """Take frames again: the client has read answers."""
        self._is_full = False
        self.state.connection.unread.check()
        self._run()

    def lost(self) -> None:
        """End the stream with its connection."""
        self.state.finish()

    # --- for the connection

    @property
    def is_idle(self) -> bool:
        """Return whether the stream is idle: no request is being handled, no part of a frame has arrived, no answer is
        unsent."""
        state = self.state
        return (
            state.phase in (StreamPhase.FRESH, StreamPhase.READY)
            and not state.held
            and not len(state.answers)
            and (state.is_silent or not state.channel.unsent)
        )

    @property
    def unhandled(self) -> int:
        """Return the bytes that have arrived and were not handled."""
        held = 0 if self._held_frame is None else HEADER_BYTES + len(self._held_frame.payload)
        return self._reader.held + held

    def close(self) -> None:
        """End the stream after the answers that are under way."""
        self.state.end()
        self.resume()

    def cut(self, reason: str) -> None:
        """Drop everything that has arrived, and end the stream, because it holds too much memory."""
        self._server.metrics.bad_frame("memory")
        self._discard()
        self.state.end(Error(message=reason))
        self.state.channel.stop_receiving()
        self.resume()

    def check(self, now: int) -> None:
        """End the stream if it took too long to authenticate, or its grant has ended. `now`: wall time."""
        state, passed = self.state, self._clock.monotonic()
        if state.phase in (StreamPhase.FRESH, StreamPhase.AUTHENTICATING):
            if passed - self._opened_at >= AUTH_SECONDS:
                self._server.metrics.authenticated("timeout")
                state.end(Error(message=answers.AUTH_REQUIRED))
                self.resume()
        elif state.phase is StreamPhase.READY and (reason := state.find_end(now)):
            state.end(Error(message=reason))
            self.resume()
        elif self._held_frame is not None:
            self._run()

    def resume(self) -> None:
        """Write the answers that are known, and take frames that had to wait."""
        if not self._is_running:
            self._flush()
            self._run()

    # --- taking frames

    def _run(self) -> None:
        """Handle the frames that have arrived, until one has to wait."""
        if self._is_running:
            return
        self._is_running = True
        try:
            for _ in range(MOST_FRAMES):
                if not self._step():
                    break
            else:
                self._run_soon()
        finally:
            self._is_running = False
        self._publishes.flush()
        self._flush()
        if self.state.phase is StreamPhase.CLOSING and self.unhandled:
            self._discard()

    def _run_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run_again)

    def _run_again(self) -> None:
        self._is_due = False
        self._run()

    def _step(self) -> bool:
        """Handle one frame; return whether another may follow."""
        if not self._may_read():
            return False
        frame = self._unpark()
        if frame is None:
            try:
                frame = self._reader.take()
            except BadFrame as error:
                self._server.metrics.bad_frame(_reason_of(error))
                self.state.end(Error(message=str(error)))
                return False
        if frame is None:
            if self._peer_has_ended:
                self._end_with_peer()
            return False
        size = HEADER_BYTES + len(frame.payload)
        self.state.unhandled = self._reader.held + size
        if self._handle(frame) is not HANDLED:
            self._park(frame)
            return False
        self.state.give(size)
        if self.state.answers.ready_bytes >= MOST_READY:
            self._flush()
        return True

    def _may_read(self) -> bool:
        queue = self.state.answers
        is_behind = len(queue) >= MOST_UNANSWERED or queue.ready_bytes >= MOST_READY
        if not self.state.may_read or self._is_full or is_behind:
            return False
        unread = self.state.connection.unread
        if self.state.phase is StreamPhase.FRESH or not unread.is_over:
            return True
        unread.wait(self._run)
        return False

    def _park(self, frame: Frame) -> None:
        """Keep a frame until there is room for it, or it has waited too long."""
        self._held_frame = frame
        self.state.connection.budget.wait(self._run)
        self.state.connection.pause.begin()

    def _unpark(self) -> Frame | None:
        """Remove and return the frame that waits; None if none does."""
        frame, self._held_frame = self._held_frame, None
        if frame is not None:
            self.state.connection.budget.leave(self._run)
            self.state.connection.pause.end()
        return frame

    def _end_with_peer(self) -> None:
        """End the stream that the client has ended."""
        if self._reader.is_inside_payload:
            self._server.metrics.bad_frame("truncated")
            self.state.end(Error(message=answers.TRUNCATED))
        else:
            self.state.end()

    def _flush(self) -> None:
        state = self.state
        if state.is_silent or state.phase is StreamPhase.OVER or not state.answers.flush():
            return
        if self._is_deaf:
            state.finish()
        elif state.channel.unsent >= state.channel.mark:
            state.connection.unread.note(state.channel)
            self._is_full = state.may_read

    def _discard(self) -> None:
        """Forget the frames that were not handled."""
        size = self.unhandled
        self._reader.clear()
        self._unpark()
        if size:
            self.state.give(size)

    def _over(self) -> None:
        self._discard()
        self.state.connection.unread.leave(self._run)
        self.state.answers.drop()
        if self._task is not None:
            self._task.cancel()
        self._messages.stop()
        if self._place is not None:
            self._place.give_back()
        self._server.metrics.stream_closed("publish" if self.state.is_silent else "request")
        self._closed(self)

    # --- one frame

    def _handle(self, frame: Frame) -> bool:
        state, flags = self.state, frame.flags
        if flags & ~KNOWN if not state.is_silent else flags & ~_PUBLISH:
            self._server.metrics.bad_frame("flags")
            state.answer(Error(message=answers.UNSUPPORTED_FLAGS))
            return HANDLED
        if not flags & _PUBLISH:
            self._server.metrics.frame("in", "json")
            return self._handle_message(frame.payload)
        if state.phase is StreamPhase.FRESH:
            self._refuse_unproven()
            return HANDLED
        if reason := state.find_end(self._clock.now()):
            state.end(Error(message=reason))
            return HANDLED
        if flags & _ACKNOWLEDGED:
            self._server.metrics.frame("in", "acknowledged_publish")
            return self._publishes.take_acknowledged(frame.payload)
        self._server.metrics.frame("in", "publish")
        return self._publishes.take_unacknowledged(frame.payload)

    def _handle_message(self, payload: bytes) -> bool:
        state = self.state
        try:
            if payload.count(b",") > MOST_COMMAS:
                raise BadMessage(answers.MALFORMED_MESSAGE)
            request = read_message(payload)
            if isinstance(request, Error):
                state.end()
            elif isinstance(request, AuthRequest):
                self._take_auth(request)
            elif state.phase is StreamPhase.FRESH:
                self._refuse_unproven()
            elif reason := state.find_end(self._clock.now()):
                state.end(Error(message=reason))
            elif isinstance(request, PublishRequest | PublishBatchRequest):
                return self._publishes.take_message(request, len(payload))
            else:
                self._messages.take(request)
        except BadMessage as error:
            self._server.metrics.bad_frame("message")
            state.end(Error(message=str(error)))
        return HANDLED

    def _refuse_unproven(self) -> None:
        self._server.metrics.authenticated("missing")
        self.state.end(Error(message=answers.AUTH_REQUIRED))

    # --- authentication

    def _take_auth(self, request: AuthRequest) -> None:
        if self.state.phase is not StreamPhase.FRESH:
            self.state.end(Error(message=answers.AUTH_TWICE))
            return
        if request.session is not None and not 1 <= len(request.session) <= LONGEST_SESSION:
            raise BadMessage(answers.MALFORMED_MESSAGE)
        grant = self._server.access.recall(request.tenant_id, request.token)
        if grant is not None:
            self._settle(grant, request)
            return
        self.state.phase = StreamPhase.AUTHENTICATING
        self._task = self._server.supervisor.spawn(self._authenticate(request), "authentication of a stream")

    async def _authenticate(self, request: AuthRequest) -> None:
        """Ask what the client may do, then take the frames that have arrived meanwhile."""
        grant: ClientGrant | None = None
        try:
            async with self.state.connection.authenticating:
                grant = await self._server.access.authenticate(request.tenant_id, request.token)
        except AuthFailed as error:
            if self._server.pause.is_over_for(str(error), "auth"):
                remote = self.state.connection.link.remote
                logger.warning("stream not authenticated", extra={"remote": remote, "reason": str(error)})
        finally:  # another error is reported by the supervisor
            self._task = None
            if self.state.phase is StreamPhase.AUTHENTICATING:
                self._settle(grant, request)
            self.resume()

    def _settle(self, grant: ClientGrant | None, request: AuthRequest) -> None:
        """Admit the stream, or end it if it has no grant or no place."""
        result, answer = "failed", answers.AUTH_FAILED
        if grant is not None:
            try:
                self._admit(grant, request)
                result, answer = "ok", ""
            except NoPlace as error:
                result, answer = "overloaded", str(error)
        self._server.metrics.authenticated(result)
        if answer:
            self.state.end(Error(message=answer))

    def _admit(self, grant: ClientGrant, request: AuthRequest) -> None:
        state = self.state
        self._place = HeldPlace(self._server.streams, grant)
        state.connection.admit(grant)
        state.grant_access(grant)
        self._reader.most = self._server.options.max_frame_bytes
        if request.client_flags is None:
            answer: Ok | AuthOk = Ok()
        else:
            state.flags = request.client_flags
            state.extensions = EXTENSIONS.intersection(request.ext or ())
            if request.session is None:
                state.extensions -= {"session"}
            state.session = (request.session or "") if "session" in state.extensions else ""
            in_force = [name for name in request.ext or () if name in state.extensions]
            answer = AuthOk(server_flags=KNOWN, ext=list(dict.fromkeys(in_force)) if request.ext is not None else None)
        if not state.is_silent:
            state.answer(answer)


def _reason_of(error: BadFrame) -> str:
    words = {"invalid": "magic", "unsupported": "version"}
    return words.get(str(error).split()[0], "length")
