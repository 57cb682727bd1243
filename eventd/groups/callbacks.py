"""The state of callbacks: position in the log, waiting events, dead letters and resends.

Their requests: see `callback_history`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eventd.egress.callbacks.formats import EXPIRED, UNSUITABLE, CallbackItem
from eventd.egress.callbacks.selection import CallbackReader, CallbackSelection
from eventd.egress.cursors import find_source
from eventd.errors import NotFound
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.backlog import Backlog
from eventd.log.delivery.repairs import read_placed
from eventd.log.routemaster.backlog import QueuedEvents, read_states
from eventd.log.topics.source_page import SourceStart, read_source_page
from eventd.resources.callback_configuration import CallbackConfig, callbacks
from eventd.resources.kinds.registry import EVENT_CALLBACK
from eventd.resources.subscriber_configuration import SubscriberLimits, subscriber_config
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import CALLBACK, RESEND, SUBSCRIBER, callback_name, callback_of
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.routemaster import read_subscribers
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import MOST, quoted

_KIND_WORDS = (EVENT_CALLBACK.name.lower(), EVENT_CALLBACK.plural, *EVENT_CALLBACK.short)
COUNTED = 1000
"""Maximum number of waiting events of a callback that are counted."""
_PAGE_BYTES = 16 << 20
_MOST_PAGES = 8
"""Maximum number of pages that are read to count waiting events: for a callback that selects few of many records, not
all of these must be read."""
MOST_BLOCKS = 20_000
"""Maximum number of blocks, the newest ones, in which the events that wait for subscribers are counted, so that the
log of a subscriber that is far behind is not read each time."""
_MOST_NAMED = 20
"""Maximum number of callbacks that a hint names."""
_WHY_NOT = {EXPIRED: "it has expired", UNSUITABLE: "it has no form in the callback's format"}


class KnownCallback(NamedTuple):
    """A callback: its configuration, which records it gets, and where it comes from: `declared` or `routemaster`."""

    config: CallbackConfig
    selection: CallbackSelection
    origin: str


@dataclass(frozen=True, slots=True)
class CallbackStatus:
    """A callback: everything up to `position` of the log is settled, and `head` is the log's last position.

    `backlog` counts the waiting events, at most `COUNTED`; unless it is `exact`, more may wait. `cursor` is None while
    the node has not created it, or its topic does not exist (`has_topic`). `resends` are the cursors of its unfinished
    resends.
    """

    callback: KnownCallback
    cursor: Cursor | None
    position: int
    head: int
    backlog: Backlog
    dead_letters: int
    resends: Sequence[Cursor]
    has_topic: bool = True

    @property
    def state(self) -> LinkState:
        """Return the state that operators see; without a cursor, `blocked` if the topic does not exist."""
        if self.cursor is not None:
            return self.cursor.shown_state
        return LinkState.RUNNING if self.has_topic else LinkState.BLOCKED


def read_callbacks(
    conn: Connection, stored: Sequence[StoredResource] | None = None, limits: SubscriberLimits | None = None
) -> dict[str, KnownCallback]:
    """Return all callbacks by name: declared ones in order, then those of subscribers of the Routemaster surface.

    `stored`: all declared resources; None: they are read. `limits` are those of requests to subscribers; None: the
    defaults.
    """
    declared = callbacks(read_resources(conn) if stored is None else stored)
    found = {
        name: KnownCallback(config, CallbackSelection(config.selector), "declared")
        for name, config in sorted(declared.items())
    }
    for row in read_subscribers(conn):
        config = replace(subscriber_config(row, limits or SubscriberLimits()), url=row.shown_callback)
        found[config.name] = KnownCallback(config, CallbackSelection(config.selector, row.intervals), "routemaster")
    return found


def find_callback(conn: Connection, name: str, limits: SubscriberLimits | None = None) -> KnownCallback:
    """Return the callback that is called NAME or `KIND/NAME`, such as `EventCallback/NAME`. Raises NotFound."""
    known = read_callbacks(conn, limits=limits)
    kind, slash, rest = name.partition("/")
    if slash and kind.lower() in _KIND_WORDS:
        name = rest
    if name not in known:
        raise _no_callback(name, known)
    return known[name]


def _no_callback(name: str, known: Collection[str]) -> NotFound:
    if name.startswith(SUBSCRIBER):
        handle = quoted(name.removeprefix(SUBSCRIBER))
        hint = "routerctl routemaster subscribers lists those there are"
        return NotFound(f"the Routemaster surface has no subscriber {handle}", hint=hint)
    meant = did_you_mean(name[:MOST], known)
    declared = [one for one in known if not one.startswith(SUBSCRIBER)]
    hint = meant or f"declared: {', '.join(declared[:_MOST_NAMED]) or 'none'}"
    if not meant and len(declared) > _MOST_NAMED:
        hint += "; routerctl callback list shows all"
    return NotFound(f"there is no callback {name if len(name) <= MOST else quoted(name)}", hint=hint)


def read_callback_statuses(conn: Connection, chosen: Sequence[KnownCallback], now: int) -> list[CallbackStatus]:
    """Return the states of these callbacks, in their order."""
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, CALLBACK, RESEND)}
    head = read_head(conn).last
    letters: dict[str, int] = {}
    for topic_id in sorted({cursor.topic_id for cursor in cursors.values() if cursor.kind == CALLBACK}):
        letters |= count_dead_letters(conn, topic_id)
    resends: dict[str, list[Cursor]] = {}
    for each in cursors.values():
        if each.kind == RESEND:
            resends.setdefault(callback_of(each.name), []).append(each)
    # Subscribers share one topic, which is read once for all of them.
    some = any(one.config.name.startswith(SUBSCRIBER) for one in chosen)
    queues = {state.row.cursor: state.backlog for state in read_states(conn, most_blocks=MOST_BLOCKS)} if some else {}
    found = []
    for one in chosen:
        name = callback_name(one.config.name)
        cursor = cursors.get(name)
        position, backlog, has_topic = _read_position(conn, one, cursor, queues.get(name), head, now)
        sent_again = resends.get(one.config.name, ())
        found.append(CallbackStatus(one, cursor, position, head, backlog, letters.get(name, 0), sent_again, has_topic))
    return found


def _read_position(
    conn: Connection, one: KnownCallback, cursor: Cursor | None, queued: QueuedEvents | None, head: int, now: int
) -> tuple[int, Backlog, bool]:
    """Return the position of a callback, its backlog, and whether its topic exists.

    `queued` is the known backlog of a subscriber; None for a declared callback.
    """
    if cursor is None:
        topic = find_source(conn, one.config.topic)
        position = head if topic is None else topic.evicted_position
        return position, Backlog(position), topic is not None
    if cursor.position >= head:
        backlog = Backlog(cursor.position)
    elif queued is None:
        backlog = _read_backlog(conn, one, cursor.topic_id, cursor.position, now)
    else:
        backlog = _backlog_of(conn, one, cursor, queued, now)
    return cursor.position, backlog, True


def _backlog_of(conn: Connection, one: KnownCallback, cursor: Cursor, queued: QueuedEvents, now: int) -> Backlog:
    """Return the backlog of a subscriber; if it is far behind, only the oldest event is read."""
    exact = queued.exact and queued.queued <= COUNTED
    backlog = Backlog(cursor.position, events=min(queued.queued, COUNTED), oldest=queued.oldest, exact=exact)
    if not queued.exact:
        first = _read_backlog(conn, one, cursor.topic_id, cursor.position, now, most=1)
        backlog.oldest = queued.oldest if first.oldest is None else first.oldest
        backlog.events = max(backlog.events, first.events)
    return backlog


def _read_backlog(
    conn: Connection, one: KnownCallback, topic_id: int, position: int, now: int, *, most: int = COUNTED
) -> Backlog:
    """Return the backlog after a position, of which at most `most` events are counted."""
    reader = CallbackReader(one.selection, one.config.format, one.config.name, now)
    backlog, full = Backlog(position), True
    for _ in range(_MOST_PAGES):
        if not full or backlog.events >= most:
            break
        page = read_source_page(
            conn,
            topic_id,
            SourceStart(backlog.upto, 0),
            reader,
            until=None,
            limit=most - backlog.events,
            max_bytes=_PAGE_BYTES,
            expire_at=None,
        )
        if page is None:
            return backlog
        times = [item.recorded_at for item in page.items if not item.omitted]
        backlog.events += len(times)
        backlog.oldest = min([*times, *([] if backlog.oldest is None else [backlog.oldest])], default=None)
        backlog.upto, full = page.upto, page.full
    backlog.exact = not full
    return backlog


def count_between(conn: Connection, one: KnownCallback, topic_id: int, after: int, upto: int, now: int) -> int:
    """Return how many events of a callback are stored at positions in `(after, upto]`."""
    return sum(not item.omitted for item in _items(conn, one, topic_id, after, upto, now))


def count_in_range(
    conn: Connection, one: KnownCallback, topic_id: int, after: int, upto: int, now: int
) -> tuple[int, bool]:
    """Return how many events of a callback are at positions in `(after, upto]`, and whether these are all.

    At most `_MOST_PAGES` pages are read.
    """
    reader = CallbackReader(one.selection, one.config.format, one.config.name, now)
    found = 0
    for _ in range(_MOST_PAGES):
        if after >= upto:
            return found, True
        start = SourceStart(after, 0)
        page = read_source_page(
            conn, topic_id, start, reader, until=upto, limit=COUNTED, max_bytes=_PAGE_BYTES, expire_at=None
        )
        found += sum(not item.omitted for item in page.items) if page else 0
        if page is None or not page.full:
            return found, True
        after = page.upto
    return found, False


def _items(
    conn: Connection, one: KnownCallback, topic_id: int, after: int, upto: int, now: int
) -> Iterator[CallbackItem]:
    """Yield the stored items of a callback at positions in `(after, upto]`, in order."""
    reader = CallbackReader(one.selection, one.config.format, one.config.name, now)
    full = True
    while full and after < upto:
        start = SourceStart(after, 0)
        page = read_source_page(
            conn, topic_id, start, reader, until=upto, limit=COUNTED, max_bytes=_PAGE_BYTES, expire_at=None
        )
        if page is None:
            return
        yield from page.items
        after, full = page.upto, page.full


def read_places(
    conn: Connection, one: KnownCallback, topic_id: int, ids: Sequence[str], upto: int, now: int
) -> dict[str, int | str]:
    """Return by id the position of each of these events or records that can be sent again, or why it cannot.

    Only those up to the position `upto` can.
    """
    wanted = set(ids)
    # Events of a group have an index. A message id may be that of an event with its expiry behind it.
    events = read_placed(conn, topic_id, sorted(wanted | {id.rpartition("-")[0] for id in wanted}))
    positions = sorted({at for at in events.values() if at is not None and at <= upto})
    near = (item for at in positions for item in _items(conn, one, topic_id, at - 1, at, now))
    found = _places_of(near, wanted)
    if wanted - found.keys():  # records of a topic, and messages of events that were refreshed since
        found = _places_of(_items(conn, one, topic_id, 0, upto, now), wanted)
    for id in sorted(wanted - found.keys()):
        found[id] = "the callback has received no stored event with this id"
    return found


def _places_of(items: Iterable[CallbackItem], wanted: Collection[str]) -> dict[str, int | str]:
    """Return by id the position of each wanted item, or why it cannot be sent; of equal ids, the last one counts."""
    found: dict[str, int | str] = {}
    for item in items:
        place = _WHY_NOT.get(item.omitted, item.omitted) if item.omitted else item.position
        found |= {id: place for id in (item.event_id, item.message_id) if id in wanted}
    return found


def read_obstacles(
    conn: Connection, one: KnownCallback, topic_id: int, after: int, upto: int, now: int
) -> dict[int, str]:
    """Return for the position of each stored item of a callback in `(after, upto]` why it cannot be sent again.

    Empty: it can.
    """
    items = _items(conn, one, topic_id, after, upto, now)
    return {item.position: _WHY_NOT.get(item.omitted, item.omitted) for item in items}
