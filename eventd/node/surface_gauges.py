"""Measures the Routemaster surface: the events that wait for its subscribers, its topics, and the room that its events
take."""

from __future__ import annotations

from collections.abc import Mapping

from eventd.groups.callbacks import MOST_BLOCKS
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.routemaster.backlog import SubscriberState, read_states
from eventd.log.topics.topics import ROUTEMASTER
from eventd.node.due_batches import due_batches, waiting_batches
from eventd.observe.routemaster_figures import StoreFigure, SubscriberFigure, SurfaceFigures, TopicFigure
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import CALLBACK
from eventd.store.rows.routemaster import list_rm_topics


def read_surface(conn: Connection, now: int, most: int, mark: int) -> SurfaceFigures:
    """Return the measurements of the surface. `most` and `mark`: see `StoreFigure`, 0 for no limit."""
    topic = find_topic(conn, ROUTEMASTER)
    letters = {} if topic is None else count_dead_letters(conn, topic.id)
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, CALLBACK)}
    states = read_states(conn, most_blocks=MOST_BLOCKS)
    return SurfaceFigures(
        [_subscriber(state, cursors, letters, now) for state in states],
        [TopicFigure(row.name, row.publisher, row.events) for row in list_rm_topics(conn)],
        StoreFigure(0 if topic is None else topic.bytes, most or None, mark or None),
    )


def _subscriber(
    state: SubscriberState, cursors: Mapping[str, Cursor], letters: Mapping[str, int], now: int
) -> SubscriberFigure:
    row, waiting = state.row, state.backlog.queued
    return SubscriberFigure(
        row.handle,
        events=waiting,
        batches=waiting_batches(state),
        due=due_batches(state, cursors.get(row.cursor), now, 0),
        added=row.sent + waiting + letters.get(row.cursor, 0),
        removed=row.sent,
    )
