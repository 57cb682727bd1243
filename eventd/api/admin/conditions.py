"""Waits until a resource, an event, a queue or the node meets a condition."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import Field

from eventd.api.admin.callbacks.callbacks import read_callback_state
from eventd.api.admin.deliveries.deliveries import ListDeliveries, list_deliveries
from eventd.api.admin.deliveries.links import read_outbound
from eventd.api.admin.events.event_search import FindEvent, find
from eventd.api.admin.queues import ListQueues, list_all
from eventd.api.admin.resources.resources import OneResource, find_resource
from eventd.api.admin.subscriptions.subscription_states import ListSubscriptions, read_states
from eventd.api.framework.operations import GROUP, Params, Services
from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.cursors.cursors import LinkState
from eventd.log.delivery.states import DeliveryState
from eventd.resources.kinds.registry import EVENT_CALLBACK, EVENT_GROUP, EVENT_PEER, EVENT_SUBSCRIPTION, find_kind
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import StoredResource
from eventd.text.plural import counted
from eventd.text.quoting import quoted

MOST_SECONDS: Final = 30
"""Maximum seconds that one request waits."""
PAUSE: Final = 0.25
"""Seconds between two checks of the condition."""
REST: Final = 3.0
"""After each check, all waits of a process pause for this multiple of the check's duration."""
NODE, EVENT, QUEUE = "node", "event", "queue"
_FORM: Final = re.compile(r"(caught-up|ready|deleted)|(state|delivered)=(.+)|(generation)>(\d{1,18})")
_CONDITIONS: Final[dict[str, tuple[str, ...]]] = {
    NODE: ("ready",),
    EVENT: ("delivered=PEER",),
    QUEUE: ("caught-up",),
    EVENT_GROUP.name: ("ready", "generation>N", "deleted"),
    **dict.fromkeys(
        (EVENT_PEER.name, EVENT_SUBSCRIPTION.name, EVENT_CALLBACK.name),
        ("state=STATE", "caught-up", "generation>N", "deleted"),
    ),
}
_OF_RESOURCES: Final = ("generation>N", "deleted")
"""The conditions of all other kinds."""
_WITH_PEER: Final = (DeliveryState.DELIVERED, DeliveryState.IN_PATH)
"""The delivery states in which the peer has the event."""
_turns: WeakKeyDictionary[Database, asyncio.Lock] = WeakKeyDictionary()


class WaitForCondition(Params):
    """What to wait for, and how long."""

    kind: str = Field(description="The kind of a resource, or `event`, `queue` or `node`.")
    name: str = Field(default="", description="The name of the resource or queue, or the id of the event.")
    condition: str = Field(
        description="`state=STATE`, `caught-up`, `delivered=PEER`, `ready`, `generation>N` or `deleted`."
    )
    seconds: int = Field(default=MOST_SECONDS, ge=0, le=MOST_SECONDS, description="Maximum time to wait.")


class Condition(NamedTuple):
    """A condition in parts: `state=running` has the name `state` and the value `running`."""

    name: str
    value: str
    text: str

    @classmethod
    def read(cls, text: str) -> Condition:
        """Parse a condition. Raises Invalid."""
        found = _FORM.fullmatch(text)
        if found is None:
            known = "state=STATE, caught-up, delivered=PEER, ready, generation>N and deleted"
            raise Invalid(f"{quoted(text)} is not a condition", hint=f"the conditions are {known}")
        bare, word, value, generation, number = found.groups()
        if word == "state" and value not in tuple(LinkState):
            raise Invalid(f"{quoted(value)} is not a state", hint=f"the states are {', '.join(LinkState)}")
        return cls(bare or word or generation, value or number or "", text)


class Standing(NamedTuple):
    """The result of a check: whether the condition is met, and the state in words."""

    met: bool
    state: str


Look = Callable[[], Awaitable[Standing]]


async def wait(services: Services, params: WaitForCondition) -> dict[str, Any]:
    """Return as soon as the condition is met, the time is over, the client has left or the node stops.

    Raises NotFound, also if the resource is deleted during the wait, unless the condition is that it is deleted.
    """
    condition, clock = Condition.read(params.condition), services.clock
    what, look = await _looking(services, params, condition)
    ends = clock.monotonic() + params.seconds
    standing = await look()
    while not standing.met and clock.monotonic() < ends and services.client_waits():
        await clock.sleep(PAUSE)
        standing = await _look_in_turn(services, look)
    return {"object": what, "condition": condition.text, "met": standing.met, "state": standing.state}


async def _look_in_turn(services: Services, look: Look) -> Standing:
    """Check again, one wait after the other, so that all waiting clients together use at most a quarter of one
    thread."""
    turn, clock = _turns.setdefault(services.database, asyncio.Lock()), services.clock
    async with turn:
        begun = clock.monotonic()
        standing = await look()
        if not standing.met:
            await clock.sleep(REST * (clock.monotonic() - begun))
    return standing


async def _looking(services: Services, params: WaitForCondition, condition: Condition) -> tuple[str, Look]:
    """Return the kind and name of the object that is waited for, and the function that checks its condition.

    Raises Invalid for a condition that the kind does not have, and NotFound for an unknown kind.
    """
    kind, name = params.kind.lower(), params.name
    if (kind == NODE) is bool(name):
        raise Invalid(f"{NODE} takes no name" if name else f"name what to wait for: {params.kind}/NAME")
    if kind == NODE:
        _require(condition, NODE)
        return NODE, lambda: _look_at_node(services, "")
    if kind == EVENT:
        _require(condition, EVENT)
        return f"{EVENT}/{name}", lambda: _look_at_event(services, name, condition.value)
    if kind == QUEUE:
        _require(condition, QUEUE)
        return f"{QUEUE}/{name}", lambda: _look_at_queue(services, name)
    one = OneResource(kind=params.kind, name=name)
    try:
        row = await services.database.read(find_resource, one)
    except NotFound:
        if condition.name != "deleted":
            raise
        if "." not in params.kind:  # with one, it is the kind of another program, known only while it has resources
            find_kind(params.kind)
        return f"{params.kind}/{name}", lambda: _look_for_resource(services, one)
    _require(condition, row.kind)
    if condition.name == "deleted":
        return f"{row.kind}/{name}", lambda: _look_for_resource(services, one)
    if condition.name == "ready":
        return f"{row.kind}/{name}", lambda: _look_at_node(services, name)
    return f"{row.kind}/{name}", lambda: services.database.read(_look_at_resource, one, condition, services.clock.now())


def _require(condition: Condition, kind: str) -> None:
    known = _CONDITIONS.get(kind, _OF_RESOURCES)
    if condition.name not in [re.split("[=>]", each)[0] for each in known]:
        raise Invalid(
            f"the condition {condition.name} does not apply to {kind}", hint=f"its conditions: {', '.join(known)}"
        )


async def _look_at_node(services: Services, group: str) -> Standing:
    """Look at the readiness of the node, or of one of its groups."""
    checks = await services.readiness()
    if checks is None:
        return Standing(met=False, state="no node serves this database")
    if group:  # a node on this machine that is asked without a key reports all groups as one check
        own = checks.get(f"{GROUP}{group}", checks.get("groups", "the node has not started the group yet"))
        return Standing(met=own == "ok", state="ready" if own == "ok" else own)
    wrong = [f"{name}: {state}" for name, state in checks.items() if state != "ok"]
    return Standing(met=not wrong, state="; ".join(wrong) or "ready")


async def _look_at_event(services: Services, event_id: str, peer: str) -> Standing:
    """Look at the deliveries of an event to a peer, in each group that holds the event and has the peer."""
    places = (await find(services, FindEvent(id=event_id)))["groups"]
    held = [place["group"] for place in places if place["stored"]]
    if not held:
        raise NotFound(f"the event {quoted(event_id)} is no longer stored")
    rows: list[dict[str, Any]] = []
    unknown: list[NotFound] = []
    for group in held:
        try:
            answer = await list_deliveries(services, ListDeliveries(group=group, event_id=event_id, peer=peer))
            rows += answer["deliveries"]
        except NotFound as error:
            unknown.append(error)
    if len(unknown) == len(held):
        raise unknown[0]
    if not rows:
        raise Conflict(f"the event {quoted(event_id)} is not meant for {quoted(peer)}")
    open_rows = [row for row in rows if row["status"] not in _WITH_PEER]
    states = [f"{row['status']}: {row['lastError']}".removesuffix(": ") for row in open_rows or rows]
    return Standing(met=not open_rows, state="; ".join(dict.fromkeys(states)))


async def _look_at_queue(services: Services, name: str) -> Standing:
    found = (await list_all(services, ListQueues(prefix=name, limit=1)))["queues"]
    if not found or found[0]["queue"] != name:
        raise NotFound(f"there is no queue {quoted(name)}", hint="`routerctl queue list` shows the queues")
    jobs = {state: found[0][state] for state in ("ready", "leased", "delayed")}
    numbers = ", ".join(f"{number} {state}" for state, number in jobs.items() if number)
    return Standing(met=not any(jobs.values()), state=numbers or "no jobs")


async def _look_for_resource(services: Services, one: OneResource) -> Standing:
    try:
        row = await services.database.read(find_resource, one)
    except NotFound:
        return Standing(met=True, state="deleted")
    return Standing(met=False, state=f"generation {row.generation}")


def _look_at_resource(conn: Connection, one: OneResource, condition: Condition, now: int) -> Standing:
    row = find_resource(conn, one)
    if condition.name == "generation":
        return Standing(met=row.generation > int(condition.value), state=f"generation {row.generation}")
    state = _read_state(conn, row, now)
    waiting = state.get("waitingEvents", state.get("lagEvents", 0))
    is_exact = state.get("waitingIsExact", True)
    reason = f" ({state['reason']})" if state["reason"] else ""
    words = f"{state['state']}{reason}, {counted(waiting, 'event')}{'' if is_exact else ' or more'} waiting"
    met = state["state"] == condition.value if condition.name == "state" else is_exact and not waiting
    return Standing(met=met, state=words)


def _read_state(conn: Connection, row: StoredResource, now: int) -> Mapping[str, Any]:
    """Return the state of the link to a peer, or of a subscription or callback."""
    group = str(row.spec.get("groupRef", ""))
    if row.kind == EVENT_PEER.name:
        return read_outbound(conn, group, str(row.spec.get("nodeName", "")), now)[0]
    if row.kind == EVENT_SUBSCRIPTION.name:
        return read_states(conn, ListSubscriptions(group=group, subscription=row.name), now)[0]
    return read_callback_state(conn, row.name, now)
