"""Dead letters, the events that a peer has refused permanently: list, retry and drop them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from eventd.api.admin.deliveries.redelivery import PeerLink
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.api.framework.recorder import name_objects
from eventd.egress.cursors import PEER, link_name, target_of
from eventd.errors import Conflict, NotFound
from eventd.groups.event_course import owner_of_letter
from eventd.groups.lookup import find_group, find_peer, read_group_topic
from eventd.log.core.head import lock_head
from eventd.log.core.scan import read_at
from eventd.log.cursors.dead_letters import delete_dead_letters
from eventd.log.delivery.dead_letter_groups import DeadLetterRow
from eventd.log.delivery.event_ledger import EventDeadLetter
from eventd.log.delivery.repairs import MOST_POSITIONS, StoredDeadLetter, read_all_dead_letters, read_dead_letters
from eventd.store.engine.database import Connection

REFUSED_AGAIN = frozenset({"id_conflict", "own_source", "loop"})
"""Reasons that lie in the event itself: the peer refuses it every time, whatever either side declares."""


class ListDeadLetters(Params):
    """Which dead letters to list, oldest first unless `newest`."""

    group: str
    peer: str = Field(default="", description="Only dead letters of this peer, by its node name.")
    event_id: str = Field(default="", description="Only dead letters of this event.")
    newest: bool = Field(default=False, description="Newest first; `after` then continues with older ones.")
    after: int = Field(default=0, ge=0, description="Continue after the dead letter with this id.")
    limit: Limit = PAGE_SIZE


async def list_letters(services: Services, params: ListDeadLetters) -> dict[str, Any]:
    return await services.database.read(_read_list, params)


def _read_list(conn: Connection, params: ListDeadLetters) -> dict[str, Any]:
    group = find_group(conn, params.group)
    cursor = link_name(group.name, find_peer(group, params.peer).node_name) if params.peer else ""
    found = read_dead_letters(
        conn,
        read_group_topic(conn, group.name).id,
        cursor=cursor,
        kind=PEER,
        event_id=params.event_id,
        after=params.after,
        limit=params.limit + 1,
        newest=params.newest,
    )
    shown, following = cut_page(found, params.limit, lambda letter: letter.id)
    return {"deadLetters": [_show(letter) for letter in shown], "next": following}


def _show(letter: StoredDeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "eventId": letter.event_id,
        "peer": target_of(letter.cursor)[1],
        "type": letter.tag,
        "subject": letter.subject,
        **show_refusal(letter),
        "stored": letter.tag is not None,
    }


def show_refusal(letter: StoredDeadLetter | DeadLetterRow | EventDeadLetter) -> dict[str, Any]:
    """Return as JSON why a consumer gave up delivering the event of a dead letter, and when."""
    return {
        "reason": letter.reason,
        "detail": letter.detail,
        "attempts": letter.attempts,
        "parkedAt": show_time(letter.parked_at),
    }


class ChooseDeadLetters(Params):
    """Some dead letters of a group's peers, not of its subscriptions: by id, all of one peer, or all."""

    group: str
    ids: list[int] = Field(default=[], max_length=MOST_POSITIONS, description="The ids of the dead letters.")
    peer: str = Field(default="", description="All dead letters of this peer, by its node name.")
    all: bool = Field(default=False, description="All dead letters of the group's peers.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if sum((bool(self.ids), bool(self.peer), self.all)) != 1:
            raise ValueError("choose dead letters in one way: ids, peer, or all")
        return self


async def retry(services: Services, params: ChooseDeadLetters) -> dict[str, Any]:
    if params.ids:
        name_letters(await services.database.read(_chosen, params))
    return await services.database.write(retry_now, params, services.clock.now())


def retry_now(
    conn: Connection, params: ChooseDeadLetters, now: int, *, except_reasons: AbstractSet[str] = frozenset()
) -> dict[str, Any]:
    """Start repairs that send the chosen dead letters to their peers again, and delete these dead letters.

    Returns `retried`, their number, and `kept`: those that cannot be sent again, each with the reason. If dead letters
    were chosen by id and one cannot be sent, raises Conflict and retries none. Those with one of the `except_reasons`
    stay unchanged.
    """
    lock_head(conn)  # of two simultaneous retries, the second finds what the first left
    letters = [letter for letter in _chosen(conn, params) if letter.reason not in except_reasons]
    judged = judge_letters(conn, params.group, letters, now)
    if params.ids and judged.kept:
        words = "; ".join(f"dead letter {letter.id}: {reason}" for letter, reason in judged.kept[:20])
        raise Conflict(
            f"some dead letters cannot be retried, so none is: {words}", hint="drop these, and retry the others"
        )
    start_retries(conn, judged, now)
    kept = [{"id": letter.id, "eventId": letter.event_id, "reason": reason} for letter, reason in judged.kept]
    return {"retried": sum(map(len, judged.again.values())), "kept": kept}


class JudgedLetters(NamedTuple):
    """Dead letters that can be sent `again`, by peer, with the `links` to these peers.

    And the other dead letters, each with the reason.
    """

    links: Mapping[str, PeerLink]
    again: Mapping[str, Sequence[StoredDeadLetter]]
    kept: Sequence[tuple[StoredDeadLetter, str]]


def judge_letters(conn: Connection, group: str, letters: Sequence[StoredDeadLetter], now: int) -> JudgedLetters:
    """Divide dead letters of a group's peers into those that can be sent again and the others.

    Raises as `PeerLink.read` does.
    """
    links = {node: PeerLink.read(conn, group, node) for node in {target_of(letter.cursor)[1] for letter in letters}}
    records = {record.position: record for record in read_at(conn, [letter.position for letter in letters])}
    kept: list[tuple[StoredDeadLetter, str]] = []
    again: dict[str, list[StoredDeadLetter]] = {}
    for letter in letters:
        node = target_of(letter.cursor)[1]
        if reason := links[node].why_not(records.get(letter.position), now):
            kept.append((letter, reason))
        else:
            again.setdefault(node, []).append(letter)
    return JudgedLetters(links, again, kept)


def start_retries(conn: Connection, judged: JudgedLetters, now: int) -> None:
    """Start the repairs that send dead letters again, and delete these dead letters. The head must be locked."""
    for node, letters in judged.again.items():
        positions = sorted({letter.position for letter in letters})
        for start in range(0, len(positions), MOST_POSITIONS):
            judged.links[node].start_at(conn, positions[start : start + MOST_POSITIONS], now)
        delete_dead_letters(conn, [letter.id for letter in letters])


async def drop(services: Services, params: ChooseDeadLetters) -> dict[str, Any]:
    if params.ids:
        name_letters(await services.database.read(_chosen, params))
    return {"dropped": await services.database.write(_drop_now, params)}


def name_letters(letters: Sequence[StoredDeadLetter]) -> None:
    """Name dead letters that are dropped or sent again in the record of actions: afterwards they are in no list."""
    owners = [" ".join(owner_of_letter(letter.cursor)) for letter in letters]
    name_objects([f"event {one.event_id} of {owner}: {one.reason}" for one, owner in zip(letters, owners, strict=True)])


def _drop_now(conn: Connection, params: ChooseDeadLetters) -> int:
    lock_head(conn)
    return delete_dead_letters(conn, [letter.id for letter in _chosen(conn, params)])


def _chosen(conn: Connection, params: ChooseDeadLetters) -> list[StoredDeadLetter]:
    """Return the chosen dead letters, ordered by id. Raises NotFound for an id that no dead letter of the group has."""
    group = find_group(conn, params.group)
    topic = read_group_topic(conn, group.name).id
    if params.ids:
        found = read_dead_letters(conn, topic, kind=PEER, ids=params.ids, limit=len(params.ids))
        missing = sorted(set(params.ids) - {letter.id for letter in found})
        if missing:
            raise NotFound(f"group {group.name} has no dead letter {', '.join(map(str, missing[:20]))}")
        return found
    cursor = link_name(group.name, find_peer(group, params.peer).node_name) if params.peer else ""
    return read_all_dead_letters(conn, topic, cursor=cursor, kind=PEER)
