"""POST /topics/NAME: a client publishes an event."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from eventd.api.routemaster.answers import BadRequest, plain
from eventd.api.routemaster.json_text import JsonFloat, JsonInteger, write_number, write_object
from eventd.api.routemaster.surface import SurfaceCall
from eventd.api.routemaster.urls import is_event_url
from eventd.log.routemaster.names import is_topic
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent, require_claim
from eventd.store.rows.routemaster import find_rm_topic
from federation.event import is_plain
from federation.lines import size_of
from federation.routemaster import ACTIONS

MOST_KEY_BYTES: Final = 256


async def publish(call: SurfaceCall) -> web.Response:
    """Append an event to the log; the response follows the commit."""
    surface, topic, publisher = call.surface, call.name, call.caller.identity
    if not is_topic(topic):
        raise BadRequest("bad topic")
    log = surface.log
    try:
        event = read_event(topic, call.body, surface.config.max_event_data)
        key = _read_key(call.key)
    except BadRequest:  # a claim of another client is reported before what is wrong with the event
        require_claim(await log.database.read(find_rm_topic, topic), publisher)
        raise
    unit = PublishEvent(
        event,
        publisher,
        flushes=log.flushes,
        config=surface.config.topic,
        key=key,
        max_bytes=surface.config.max_bytes,
        random=log.chance.token(16),
    )
    written = await log.submit(unit)
    if not written.deduped:
        surface.published(topic, publisher, event.size)
    return plain(status=200)


def read_event(topic: str, body: dict[str, Any], most: int) -> PublishedEvent:
    """Return the event of a request; `most`: bytes of its data as MessagePack. Raises `BadRequest`."""
    kind, url = body.get("type"), body.get("url")
    if not isinstance(kind, str) or kind not in ACTIONS or not is_event_url(url):
        raise BadRequest("bad event")
    try:
        return PublishedEvent(topic, kind, str(url), _read_time(body.get("timestamp")), _read(body.get("data"), most))
    except ValueError:
        raise BadRequest("bad event") from None


def _read_time(time: Any) -> str:
    if time is None or time is False:
        return ""
    if not isinstance(time, JsonInteger | JsonFloat):
        raise ValueError("the time is not a number")
    return write_number(time)


def _read(data: Any, most: int) -> str:
    if data is None:
        return ""
    if not isinstance(data, dict):
        raise ValueError("the data is not an object")
    return write_object(data, most)


def _read_key(key: str) -> str:
    if not is_plain(key) or size_of(key) > MOST_KEY_BYTES:
        raise BadRequest("bad idempotency key")
    return key
