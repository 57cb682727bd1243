"""Subscribing, unsubscribing, and the list of subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from eventd.api.routemaster.answers import BadRequest, as_json, done
from eventd.api.routemaster.json_text import JsonFloat, JsonInteger
from eventd.api.routemaster.surface import Caller, SurfaceCall
from eventd.api.routemaster.urls import read_callback
from eventd.log.routemaster.backlog import SubscriberState, read_states
from eventd.log.routemaster.errors import RmTopicNotFound, SubscriberNotFound
from eventd.log.routemaster.names import is_topic
from eventd.log.routemaster.subscriptions import DeleteSubscriber, LeaveTopic, PutSubscriber, SubscriptionSettings
from eventd.store.rows.routemaster import find_subscriber
from federation.event import is_plain
from federation.lines import size_of

MEMBERS: Final = ("topics", "callback", "uuid", "timeout", "max")
MOST_TIMEOUT_MS: Final = 3_600_000
MOST_UUID_BYTES: Final = 4096
_MOST: Final = 2**63 - 1


async def subscribe(call: SurfaceCall) -> web.Response:
    """Make the client a subscriber, or change its settings and its topics, in one transaction."""
    surface = call.surface
    wanted = read_settings(call.body)
    if reason := surface.judge(wanted.callback):
        raise BadRequest(reason)
    random = surface.log.chance.token(16)
    await surface.log.submit(PutSubscriber(call.caller.identity, wanted, config=surface.config.topic, random=random))
    await surface.changed()
    return done()


def read_settings(body: dict[str, Any]) -> SubscriptionSettings:
    """Return the settings of the subscription that a request asks for. Raises `BadRequest`."""
    if body.keys() - set(MEMBERS):
        raise BadRequest("bad data in payload")
    topics = body.get("topics")
    if not isinstance(topics, list):
        raise BadRequest("need an array of topics")
    if not all(map(is_topic, topics)):
        raise BadRequest("bad topic")
    return SubscriptionSettings(
        tuple(dict.fromkeys(topics)),
        read_callback(body.get("callback")),
        _read_uuid(body.get("uuid")),
        _read_number(body, "timeout", range(MOST_TIMEOUT_MS + 1)),
        _read_number(body, "max", range(1, _MOST)),
    )


def _read_uuid(uuid: Any) -> str:
    if uuid is None:
        return ""
    is_text = isinstance(uuid, str) and not isinstance(uuid, JsonInteger | JsonFloat)
    if not is_text or not is_plain(uuid) or size_of(uuid) > MOST_UUID_BYTES:
        raise BadRequest("bad uuid")
    return str(uuid)


def _read_number(body: dict[str, Any], name: str, within: Sequence[int]) -> int | None:
    value = body.get(name)
    if value is None or value is False:
        return None
    try:
        number = value.read() if isinstance(value, JsonInteger) else None
    except ValueError:
        number = None
    if number is None or number not in within:
        raise BadRequest(f"bad {name}")
    return int(number)


async def list_subscribers(call: SurfaceCall) -> web.Response:
    """List all subscribers with their settings, their topics, and how many events wait for each."""
    async with call.surface.counting:
        states = await call.surface.log.database.read(read_states)
    return as_json([_show(call.caller, state) for state in states])


def _show(caller: Caller, state: SubscriberState) -> dict[str, Any]:
    row, queued = state
    is_own = caller.kind == "root" or row.identity == caller.identity
    return {
        "subscriber": caller.show(row.identity),
        "uuid": row.uuid if is_own else "",
        "callback": row.callback if is_own else row.shown_callback,
        "max_events": row.max_events,
        "timeout": row.timeout_ms,
        "topics": row.topics,
        "events": {
            "sent": row.sent,
            "queued": queued.queued,
            "oldest": None if queued.oldest is None else queued.oldest // 1_000_000,
        },
    }


async def unsubscribe(call: SurfaceCall) -> web.Response:
    """End the subscription of the client to all its topics, and drop the events that wait for it."""
    if call.caller.kind == "root":
        raise SubscriberNotFound
    await call.surface.log.submit(DeleteSubscriber(call.caller.identity))
    await call.surface.changed()
    return done()


async def leave(call: SurfaceCall) -> web.Response:
    """End the subscription of the client to one topic; events that wait already are still delivered."""
    identity, log = call.caller.identity, call.surface.log
    if call.caller.kind == "root":
        raise SubscriberNotFound
    if not is_topic(call.name):  # not looked up: some of these no database accepts
        if await log.database.read(find_subscriber, identity) is None:
            raise SubscriberNotFound
        raise RmTopicNotFound(call.name)
    await log.submit(LeaveTopic(identity, call.name))
    await call.surface.changed()
    return done()
