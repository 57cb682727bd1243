"""Executes the safe actions of a plan, in its order and only where they are still needed. Reports every action."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from eventd.api.admin.deliveries.dead_letters import REFUSED_AGAIN, ChooseDeadLetters, retry_now
from eventd.api.admin.deliveries.redelivery import PeerLink
from eventd.api.doctor.plan import Action
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Services
from eventd.egress.cursors import link_name
from eventd.errors import EventdError
from eventd.groups.links import read_cursor_of, read_repairs_of, wanted_by
from eventd.groups.lookup import find_group, find_peer, read_group_topic
from eventd.log.cursors.cursors import Cursor, LinkState, clear_failures
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.backlog import read_stale
from eventd.log.delivery.repairs import MOST_POSITIONS
from eventd.log.delivery.selection import Selection
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import announce
from eventd.text.plural import counted


class FixResult(NamedTuple):
    """The outcome of one action: whether it changed anything, and the `result` in words."""

    changed: bool
    result: str


async def carry_out(services: Services, actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Execute the safe actions of the plan; return every action with its outcome, as JSON.

    A failed action does not stop the others.
    """
    outcomes = []
    for action in actions:
        done = await _do(services, action)
        shown = {name: value for name, value in action.show().items() if name == "action" or name.startswith("target")}
        outcomes.append({**shown, "changed": done.changed, "result": done.result})
    return outcomes


async def _do(services: Services, action: Action) -> FixResult:
    if not action.safe:
        return FixResult(False, "not done: this action needs an operator's approval")
    fix = _FIXES.get(action.action)
    if fix is None:
        return FixResult(False, f"nothing was changed; check this: {action.reason}")
    try:
        return await fix(services, action.group, action.peer)
    except EventdError as error:
        return FixResult(False, f"not done: {error}")


async def _retry(services: Services, group: str, peer: str) -> FixResult:
    now = services.clock.now()
    parts, retried = [], 0
    if await services.database.read(_has_letters, group, peer):
        all_of_it = ChooseDeadLetters(group=group, peer=peer)
        answer = await services.database.write(partial(retry_now, except_reasons=REFUSED_AGAIN), all_of_it, now)
        retried = answer["retried"]
        parts.append(f"{counted(retried, 'dead letter is', 'dead letters are')} sent again")
        if answer["kept"]:
            why = answer["kept"][0]["reason"]
            parts.append(f"{len(answer['kept']):,} cannot be sent again, the first one because {why}")
    woken = await _wake(services, group, peer)
    return FixResult(retried > 0 or woken.changed, "; ".join([*parts, woken.result]))


def _has_letters(conn: Connection, group: str, peer: str) -> bool:
    return bool(count_dead_letters(conn, read_group_topic(conn, group).id, link_name(group, peer)))


async def _repush(services: Services, group: str, peer: str) -> FixResult:
    """Clear the failures of a link and its repairs.

    If there are none and the link is running, start a repair that sends waiting refreshes before the backlog.
    """
    woken = await _wake(services, group, peer)
    if woken.changed:
        return woken
    now = services.clock.now()
    if not await services.database.read(_to_overtake, group, peer, now):
        return FixResult(False, f"{woken.result}; no refresh can be sent before the backlog")
    count = await services.database.write(_overtake, group, peer, now)
    sent = counted(count, "refresh is", "refreshes are")
    return FixResult(count > 0, f"{sent} sent before the rest of the backlog")


def _to_overtake(conn: Connection, group: str, node: str, now: int) -> list[int]:
    """Return up to `MOST_POSITIONS` positions of waiting refreshes that no repair lists; none unless the link runs."""
    peer = find_peer(find_group(conn, group), node)
    cursor = read_cursor_of(conn, peer)
    if cursor is None or cursor.shown_state is not LinkState.RUNNING:
        return []
    under_way: set[int] = set()
    for repair in read_repairs_of(conn, peer):
        under_way |= Selection.from_json(repair.selection).positions
    stale = read_stale(conn, cursor.topic_id, wanted_by(peer), after=cursor.position, now=now, cursor=cursor.name)
    return sorted({record.position for record in stale} - under_way)[:MOST_POSITIONS]


def _overtake(conn: Connection, group: str, node: str, now: int) -> int:
    announce(conn)  # locks the head: two simultaneous calls start one repair
    places = _to_overtake(conn, group, node, now)
    if places:
        PeerLink.read(conn, group, node).start_at(conn, places, now)
    return len(places)


async def _wake(services: Services, group: str, peer: str) -> FixResult:
    """Clear the failures of a link and its repairs, so that they try again at once, except those that are paused."""
    state, held = await services.database.read(_read_held, group, peer)
    if not held:
        return FixResult(False, state)
    await services.database.write(_wake_now, group, peer, services.clock.now())
    return FixResult(True, f"the link and its repairs, unless paused, are tried again at once; {state}")


def _read_held(conn: Connection, group: str, node: str) -> tuple[str, list[str]]:
    """Return the state of a link in words, and which of its cursors, repairs included, neither run nor are paused."""
    peer = find_peer(find_group(conn, group), node)
    cursor = read_cursor_of(conn, peer)
    if cursor is None:
        return "no node has registered this peer yet: start one", []
    held = [each.name for each in (cursor, *read_repairs_of(conn, peer)) if _is_held(each)]
    return _state_words(cursor), held


def _is_held(cursor: Cursor) -> bool:
    return cursor.state is not LinkState.RUNNING and cursor.paused_at is None


def _state_words(cursor: Cursor) -> str:
    if cursor.paused_at is not None:
        by = f" by {cursor.paused_by}" if cursor.paused_by else ""
        return f"the link is paused{by}, and stays paused"
    success = (
        f"the last success was at {show_time(cursor.succeeded_at)}"
        if cursor.succeeded_at
        else "nothing has been sent successfully so far"
    )
    if cursor.state is LinkState.RUNNING:
        return f"the link is running, {success}"
    why = ": ".join(part for part in (cursor.reason, cursor.last_error) if part)
    return f"until now it was {cursor.state} ({why or 'no reason is known'}), {success}"


def _wake_now(conn: Connection, group: str, node: str, now: int) -> None:
    announce(conn)  # locks the head, which is always locked before cursors
    _, held = _read_held(conn, group, node)
    clear_failures(conn, held, now)


_FIXES: dict[str, Callable[[Services, str, str], Awaitable[FixResult]]] = {
    "retry-failed-deliveries": _retry,
    "force-repush-stale-ttl": _repush,
    "check-peer-connectivity": _wake,
}
"""The actions that change something, by name. Every other action asks an operator to check something."""
