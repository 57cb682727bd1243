"""Subscribing: finds the position that a subscription begins at, opens the stream of its events, and starts them.

The order matters: a place is reserved, the position fixed, the stream opened and its first message written, then the
subscriber gets its answer, and only then events. A client may read the answer before it reads any event stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, NamedTuple

from eventd.api.quic.answers import json_frame, stream_not_found
from eventd.api.quic.event_frames import EventForm
from eventd.api.quic.event_stream import EventOutput, EventStream, Subscription
from eventd.api.quic.interfaces import NoPlace, Subscriber
from eventd.api.quic.options import StreamOptions
from eventd.api.topics.calls import V0
from eventd.api.topics.client_stream import FollowerRegistry, WatchCursor
from eventd.api.topics.shared_reads import PageOptions, TopicRequest
from eventd.errors import EventdError
from eventd.log.core.head import read_head
from eventd.log.core.records import View
from eventd.log.core.topic_row import find_topic, find_topic_by_id
from eventd.log.topics.limits import read_size
from eventd.log.topics.topic_page import TopicQuery, epoch_of, read_topic_page
from eventd.observe.stream_figures import StreamMetrics
from eventd.quic.link import NoStreamsLeft
from eventd.store.engine.database import Connection
from eventd.streams.frames import Flags
from eventd.streams.messages import (
    At,
    Error,
    EventStreamHello,
    Message,
    SubscribeCursorError,
    Subscribed,
    SubscribeRequest,
    is_named,
)
from eventd.streams.names import StreamName

UNSENT: Final = 256 << 10
"""Maximum number of unsent bytes of one event stream, unless a single event is larger."""
RECORDS: Final = 1024
BYTES: Final = UNSENT // 2
"""Maximum number of records of a page, and its approximate bytes. A page is written while less than the rest waits."""
GAPS: Final = "gap"
"""The extension of clients that know messages about gaps."""
MEASURE_SECONDS: Final = 5.0
"""The pause between two reads of the ends of topics whose subscribers are behind."""
FULL: Final = "max subscriptions per connection exceeded"

Start = Callable[[], None]


class StartPosition(NamedTuple):
    """A position in a topic: of the first read (`cursor`) and in the answer (`offset`), and the topic's epoch.

    `has_history`: whether there are events after it already.
    """

    topic_id: int
    cursor: WatchCursor
    offset: int
    epoch: str
    has_history: bool


class CursorProblem(NamedTuple):
    """The requested offset is not stored: whether it is `in_future`, the nearest stored offset, and the topic's
    epoch."""

    in_future: bool
    requested: int
    available: int
    epoch: str


class Subscribing:
    """Begins the subscriptions of all connections."""

    def __init__(self, v0: V0, metrics: StreamMetrics, options: StreamOptions) -> None:
        self._v0 = v0
        self._metrics = metrics
        self._options = options
        self._open: dict[EventStream, None] = {}
        # A pause between frames counts for each frame only if a page is not more than one.
        single = options.batch_delay > 0
        self._pages = PageOptions(
            nodes=frozenset(),
            view=View(bare=True),
            limit=options.batch_events if single else max(RECORDS, options.batch_events),
            max_bytes=options.batch_bytes if single else max(BYTES, options.batch_bytes),
        )
        metrics.behind(self.behind)

    def behind(self) -> int:
        """Return by how many records the slowest subscriber is behind."""
        return max((stream.behind for stream in self._open), default=0)

    async def subscribe(
        self, subscriber: Subscriber, request: SubscribeRequest, name: StreamName
    ) -> tuple[Message, Start | None]:
        """Return the answer to a request, and what starts the events: to be called when the answer is written."""
        try:
            number = subscriber.places.take(subscriber.grant, request.subscription_id)
        except NoPlace as error:
            return Error(message=str(error)), None
        opened = False
        try:
            answer, start = await self._open_at(subscriber, request, name, number)
            opened = start is not None
        finally:
            if not opened:
                subscriber.places.release(number)
        return answer, start

    async def _open_at(
        self, subscriber: Subscriber, request: SubscribeRequest, name: StreamName, number: int
    ) -> tuple[Message, Start | None]:
        if subscriber.link.streams_left(unidirectional=True) < 1:
            return Error(message=FULL), None
        place = await self._find(request, name)
        if place is None:
            return Error(message=stream_not_found(name)), None
        if isinstance(place, CursorProblem):
            return _refuse(place), None
        try:
            start = self._begin(subscriber, request, name, number, place)
        except NoStreamsLeft:
            return Error(message=FULL), None
        return Subscribed(subscription_id=number, offset=place.offset, epoch=place.epoch), start

    async def _find(self, request: SubscribeRequest, name: StreamName) -> StartPosition | CursorProblem | None:
        if not name.is_possible:
            return None
        await self._v0.catch_up(name.topic)
        return await self._v0.database.read(find_position, name.topic, request, self._v0.clock.now())

    def _begin(
        self, subscriber: Subscriber, request: SubscribeRequest, name: StreamName, number: int, place: StartPosition
    ) -> Start:
        """Open the stream of events, and write its first message; return what starts the events.

        Raises `NoStreamsLeft`.
        """
        options = self._options
        form = EventForm(
            options.batch_events,
            options.batch_bytes,
            offsets=bool(subscriber.flags & Flags.OFFSETS),
            as_json=name if is_named(request) else None,
        )
        wanted = Subscription(
            number, subscriber.grant, form, gaps=GAPS in subscriber.extensions, skip_behind=request.skip_behind
        )

        def released() -> None:
            self._open.pop(events, None)
            self._metrics.subscribed(-1)
            self._metrics.stream_closed("events")
            subscriber.places.release(number)

        output = EventOutput(self._v0.clock, options.batch_delay)
        output.was_late = place.has_history
        events = EventStream(self._v0.part(FollowerRegistry), output, wanted, self._metrics, released)
        output.channel = channel = subscriber.link.open_stream(output, unidirectional=True)
        channel.mark = UNSENT - BYTES
        self._open[events] = None
        self._metrics.subscribed(1)
        self._metrics.stream_opened("events")
        subscriber.places.hold(number, events)
        self._metrics.frame("out", "json")
        output.write(json_frame(EventStreamHello(subscription_id=number)))
        topic = TopicRequest(place.topic_id, name.topic, self._pages)
        return lambda: self._start(events, topic, place.cursor)

    def _start(self, events: EventStream, topic: TopicRequest, cursor: WatchCursor) -> None:
        if not events.has_ended:
            events.follow(topic, cursor)
            self._v0.supervisor.spawn(events.run(), f"subscription of {topic.name}")

    async def measure_for_ever(self) -> None:
        """Regularly read the last seqs of topics whose subscribers are behind, because a subscriber that does not read
        does not notice new records."""
        while True:
            await self._v0.clock.sleep(MEASURE_SECONDS)
            late = [stream for stream in self._open if stream.is_late]
            if not late:
                continue
            with suppress(EventdError):  # measured again when the database can be read
                heads = await self._v0.database.read(read_heads, {stream.topic_id: None for stream in late})
                for stream in late:
                    stream.note_head(heads.get(stream.topic_id, 0))


def find_position(
    conn: Connection, topic: str, request: SubscribeRequest, now: int
) -> StartPosition | CursorProblem | None:
    """Return where a subscription begins; None if there is no such stream."""
    line = find_topic(conn, topic)
    if line is None or line.is_queue:
        return None
    epoch = epoch_of(read_head(conn).epoch, line.id)
    oldest, tail = read_size(conn, line, now).earliest_seq - 1, line.head_seq
    match request.start:
        case At(offset):
            pass
        case "earliest":
            offset = oldest
        case _:
            offset = tail
    tells = request.on_gap == "tell"
    if request.epoch and request.epoch != epoch:
        if tells:
            return StartPosition(line.id, WatchCursor(0, request.epoch), oldest, epoch, has_history=tail > 0)
        return CursorProblem(in_future=False, requested=offset, available=oldest, epoch=epoch)
    if offset > tail:
        return CursorProblem(in_future=True, requested=offset, available=tail, epoch=epoch)
    if offset < oldest and not tells:
        page = read_topic_page(conn, TopicQuery(line.id, now, offset, limit=1, max_bytes=1, epoch=epoch, apart=True))
        if page.tombstone is not None:  # otherwise they were all deleted by request
            return CursorProblem(in_future=False, requested=offset, available=oldest, epoch=epoch)
    return StartPosition(line.id, WatchCursor(offset, epoch), offset, epoch, has_history=offset < tail)


def read_heads(conn: Connection, topics: Collection[int]) -> dict[int, int]:
    """Return the last seqs of topics by their ids, without those that no longer exist."""
    found = (find_topic_by_id(conn, topic) for topic in topics)
    return {line.id: line.head_seq for line in found if line is not None}


def _refuse(problem: CursorProblem) -> Message:
    return SubscribeCursorError(
        reason="in_future" if problem.in_future else "too_old",
        requested=problem.requested,
        available=problem.available,
        epoch=problem.epoch,
    )
