"""The stream of a subscription's events: a follower of a topic whose client reads over QUIC.

Nothing is queued for the client: a subscriber that does not read gets nothing more, and continues later from its own
position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from eventd.api.quic.answers import json_frame
from eventd.api.quic.event_frames import EventForm, frames_of
from eventd.api.quic.interfaces import Channel, ClientGrant
from eventd.api.topics.client_stream import FollowedTopic, Follower, FollowerRegistry
from eventd.api.topics.shared_reads import Page
from eventd.log.topics.topic_page import RECREATED
from eventd.observe.stream_figures import StreamMetrics
from eventd.runtime.clock import Clock
from eventd.streams.messages import GapMessage

SKIPPED = "skipped"
"""The reason of a gap that the subscriber asked for, by `skip_behind`."""
_NEVER = float("inf")


class EventOutput:
    """The sending side of an event stream. It is full from `Channel.mark` unsent bytes on until half of them are sent.

    With a `delay`, it is also full for that many seconds after each write. `ended` is called once, when the client
    gets nothing more.
    """

    def __init__(self, clock: Clock, delay: float) -> None:
        self.channel: Channel | None = None
        self.ended: Callable[[], None] = lambda: None
        self.closed = False
        self.was_late = False
        """Whether the client was behind, at the beginning or because it did not read. The code that uses this flag
        resets it."""
        self._clock = clock
        self._delay = delay
        self._is_full = False
        self._next_at = 0.0
        self._room: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """Return whether nothing should be written at present."""
        return self._is_full or (self._delay > 0 and self._clock.monotonic() < self._next_at)

    def write(self, text: bytes) -> None:
        """Send whole frames, without waiting for the client; nothing after the end."""
        if self.closed or not text or self.channel is None:
            return
        self.channel.write(text)
        if self.channel.unsent >= self.channel.mark:
            self._is_full = self.was_late = True
        if self._delay:
            self._next_at = self._clock.monotonic() + self._delay

    async def drain(self) -> None:
        """Wait until it is not full. Raises ConnectionError if it is closed."""
        while self._is_full and not self.closed:
            self._room = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._room,))
        if not self.closed and (pause := self._next_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(pause)
        if self.closed:
            raise ConnectionError("the event stream has ended")

    def send_last(self, text: bytes) -> None:
        """Send the last frames, and finish."""
        self.write(text)
        self.finish()

    def finish(self) -> None:
        """End the stream after the frames that were written, which are complete."""
        if not self.closed:
            self._close()
            if self.channel is not None:
                self.channel.write(b"", end=True)

    def abort(self) -> None:
        """End the stream now, and drop what the client has not read."""
        self._close()
        if self.channel is not None:
            self.channel.reset()

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self._wake()
            self.ended()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # --- events of the stream

    def received(self, data: bytes, *, ended: bool) -> None:
        """Do nothing: the client cannot send on this stream, which has one direction."""

    def was_reset(self, code: int) -> None:
        """Do nothing: the client cannot send on this stream, which has one direction."""

    def was_stopped(self, code: int) -> None:
        """End: the client has dropped the stream, which is how it unsubscribes."""
        self._close()

    def has_room(self) -> None:
        """Continue sending, because the client has read half of the unsent bytes."""
        self._is_full = False
        self._wake()

    def lost(self) -> None:
        """End: the connection has ended."""
        self._close()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The options of a subscription. `gaps`: whether it knows messages about gaps.

    `skip_behind`: by how many events it may be behind; None: by any number.
    """

    id: int
    grant: ClientGrant
    form: EventForm
    gaps: bool = False
    skip_behind: int | None = None


class EventStream(Follower):
    """A subscriber of one stream. `released` is called once, when it has ended, also if it was never run."""

    def __init__(
        self,
        registry: FollowerRegistry,
        output: EventOutput,
        subscription: Subscription,
        metrics: StreamMetrics,
        released: Callable[[], None],
    ) -> None:
        super().__init__(registry, output, _NEVER)
        self.subscription = subscription
        self._output = output
        self._metrics = metrics
        self._released = released
        self._head_seq = 0  # the last seq of the topic as far as it is known here
        output.ended = self._end_of_output

    @property
    def grant(self) -> ClientGrant:
        """Return the grant that permits the subscription."""
        return self.subscription.grant

    @property
    def topic_id(self) -> int:
        """Return the id of the topic that the stream follows; 0 before it follows one, and after its end."""
        return next((following.feed.want.topic_id for following in self.topics.values()), 0)

    @property
    def behind(self) -> int:
        """Return by how many records the subscriber is behind the topic."""
        return max((self._head_seq - following.after for following in self.topics.values()), default=0)

    @property
    def is_late(self) -> bool:
        """Return whether the subscriber does not read, so that its pages do not show where its topic ends."""
        return self._output.full

    def note_head(self, seq: int) -> None:
        """Note the last seq of its topic."""
        self._head_seq = max(self._head_seq, seq)

    def end(self, reason: str = "") -> None:
        """Have `run` return, and finish the stream after a whole frame. `reason` is not sent."""
        super().end()
        self._output.finish()

    def _end_of_output(self) -> None:
        super().end()
        self._released()

    def send(self, following: FollowedTopic, page: Page) -> None:
        """Write a page, or jump to the end of the topic if the subscriber is too far behind."""
        self._head_seq = page.head_seq
        is_late = self._output.was_late
        self._output.was_late = False
        most = self.subscription.skip_behind
        behind = page.head_seq - (following.after if is_late else page.upto)
        if most is not None and behind > most and not self.has_ended and not _is_recreated(page):
            self._skip(following, page)
        else:
            super().send(following, page)

    def _skip(self, following: FollowedTopic, page: Page) -> None:
        missed = page.head_seq - following.after
        self._output.write(self._gap(following.after, page.head_seq - 1, SKIPPED, missed))
        following.is_first = False
        following.after = page.head_seq
        following.epoch = page.epoch or following.epoch

    def words(self, following: FollowedTopic, page: Page) -> bytes:
        """Return a page as frames; empty without news. Those with events are shared with the other subscribers."""
        gap = b""
        if (lost := page.tombstone) is not None:
            last = max(lost.gap_to - 1, lost.gap_from - 1)
            gap = self._gap(
                lost.gap_from - 1, last, lost.reason, lost.lost, page.epoch if _is_recreated(page) else None
            )
        frames = frames_of(page, self.subscription.form)
        if frames.events:
            form = "events" if self.subscription.form.as_json is None else "json"
            self._metrics.frame("out", form, frames.frames)
            self._metrics.delivered(frames.events, frames.size)
        return gap + frames.data if gap else frames.data

    def _gap(self, first: int, last: int, reason: str, missed: int, epoch: str | None = None) -> bytes:
        """Return the message about lost offsets; empty for a subscriber that does not know it."""
        self._metrics.gap(reason)
        if not self.subscription.gaps:
            return b""
        self._metrics.frame("out", "json")
        return json_frame(
            GapMessage(
                subscription_id=self.subscription.id, first=first, to=last, reason=reason, missed=missed, epoch=epoch
            )
        )

    def heartbeat(self) -> bytes:
        """Return nothing: the connection is kept alive by pings."""
        return b""

    def error(self, code: str, message: str) -> bytes:
        """Return nothing: the stream just ends, and the client continues from the offset that it has."""
        return b""


def _is_recreated(page: Page) -> bool:
    return page.tombstone is not None and page.tombstone.reason == RECREATED
