"""One list of the dead letters of peers, subscriptions, callbacks and routers, and their numbers in groups, which
include queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from eventd.api.admin.deliveries.dead_letters import show_refusal
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import cut_page
from eventd.groups.event_course import owner_of_letter
from eventd.groups.lookup import find_group
from eventd.log.core.topic_row import find_topic, read_topic_names
from eventd.log.delivery.dead_letter_groups import (
    DeadLetterRow,
    LetterGroup,
    count_letter_groups,
    read_letter_groups,
    read_letters_by_id,
    read_letters_of,
    read_newest_letters,
)
from eventd.store.engine.database import Connection
from eventd.store.rows.leases import MOST_QUEUES, read_dead_lettering

QUEUE, ROUTER = "queue", "router"
REDELIVERED = "max_deliveries"
"""The one reason for which a job of a queue becomes a dead letter."""
_PAGES = 10
"""Maximum number of pages that are read to fill one page of the answer, if there are more groups than are read."""
_GROUP = "group:"


class ListAllDeadLetters(Params):
    """Which dead letters to list, the newest first, of those that the caller's key may access."""

    narrows = True

    kind: Literal["", "peer", "subscription", "callback", "router", "queue"] = Field(
        default="", description="Only those of this kind of owner: peer, subscription, callback, router or queue."
    )
    owner: str = Field(
        default="", description="Only those of this owner: a peer's node name, or the name of another owner."
    )
    reason: str = Field(default="", description="Only those with this reason.")
    group: str = Field(default="", description="Only those of events of this EventGroup.")
    ids: list[int] = Field(default=[], max_length=200, description="Only those with these ids.")
    brief: bool = Field(default=False, description="Leave the groups with their counts out of the answer.")
    after: int = Field(default=0, ge=0, description="Continue after the dead letter with this id.")
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of entries of the page.")


class _Owner(NamedTuple):
    """The owner of dead letters: its kind and name, and the group or topic of records that their events are in."""

    kind: str
    name: str
    group: str
    topic: str

    def fits(self, params: ListAllDeadLetters, sees: Callable[[str], bool]) -> bool:
        """Return whether dead letters of this owner are requested, and the caller may see them."""
        return (
            params.kind in ("", self.kind)
            and params.owner in ("", self.name)
            and params.group in ("", self.group)
            and sees(self.group or self.topic)
            and (self.kind != ROUTER or sees(self.name))
        )


def _owner(cursor: str, topic: str) -> _Owner:
    kind, name = owner_of_letter(cursor)
    is_group = topic.startswith(_GROUP)
    return _Owner(kind, name, topic.removeprefix(_GROUP) if is_group else "", "" if is_group else topic)


async def list_all(services: Services, params: ListAllDeadLetters) -> dict[str, Any]:
    """Return a page of dead letters, and all groups with their bounded counts."""
    return await services.database.read(_read, params, services.sees)


def _read(conn: Connection, params: ListAllDeadLetters, sees: Callable[[str], bool]) -> dict[str, Any]:
    if params.group:
        find_group(conn, params.group)
    if params.ids:
        return _read_chosen(conn, params, sees)
    groups, complete = read_letter_groups(conn)
    topics = read_topic_names(conn, sorted({group.topic_id for group in groups}))
    owners = {group: _owner(group.cursor, topics.get(group.topic_id, "")) for group in groups}
    fitting = [group for group in groups if params.reason in ("", group.reason) and owners[group].fits(params, sees)]
    before = params.after or None
    if not complete:
        found, following = _search(conn, params, sees)
    else:
        every = len(fitting) == len(groups)
        read = read_newest_letters if every else lambda conn, **ask: read_letters_of(conn, fitting, **ask)
        found, following = cut_page(read(conn, before=before, limit=params.limit + 1), params.limit, lambda one: one.id)
    names = topics | read_topic_names(conn, sorted({one.topic_id for one in found} - topics.keys()))
    counted = _count(conn, fitting, owners) + _count_queues(conn, params, sees) if not params.brief else []
    return {
        "deadLetters": [_show(one, names) for one in found],
        "next": following,
        "groups": counted,
        "groupsComplete": complete,
    }


def _read_chosen(conn: Connection, params: ListAllDeadLetters, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Return the dead letters with the requested ids that fit, newest first, without counts."""
    found = read_letters_by_id(conn, params.ids)
    topics = read_topic_names(conn, sorted({one.topic_id for one in found}))
    shown = [
        _show(one, topics)
        for one in sorted(found, key=lambda one: one.id, reverse=True)
        if _owner(one.cursor, topics.get(one.topic_id, "")).fits(params, sees) and params.reason in ("", one.reason)
    ]
    return {"deadLetters": shown, "next": None, "groups": [], "groupsComplete": True}


def _search(
    conn: Connection, params: ListAllDeadLetters, sees: Callable[[str], bool]
) -> tuple[Sequence[DeadLetterRow], int | None]:
    """Return a page and the id to continue after, from a bounded number of dead letters: it may be short."""
    found: list[DeadLetterRow] = []
    before = params.after or None
    for _ in range(_PAGES):
        page = read_newest_letters(conn, before=before, limit=1000)
        topics = read_topic_names(conn, sorted({one.topic_id for one in page}))
        for one in page:
            before = one.id
            fits = _owner(one.cursor, topics.get(one.topic_id, "")).fits(params, sees)
            if fits and params.reason in ("", one.reason):
                found.append(one)
                if len(found) == params.limit:
                    return found, before
        if len(page) < 1000:
            return found, None
    return found, before


def _count(
    conn: Connection, groups: Sequence[LetterGroup], owners: Mapping[LetterGroup, _Owner]
) -> list[dict[str, Any]]:
    return [
        _show_group(owners[group], group.reason, count, exact=exact)
        for group, (count, exact) in zip(groups, count_letter_groups(conn, groups), strict=True)
    ]


def _count_queues(conn: Connection, params: ListAllDeadLetters, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Return the queues with dead letters, each with the topic that holds them and the number of records there."""
    if params.kind not in ("", QUEUE) or params.reason not in ("", REDELIVERED) or params.group:
        return []
    found = []
    for queue, letters in read_dead_lettering(conn, MOST_QUEUES):
        topic = find_topic(conn, letters)
        owner = _Owner(QUEUE, queue, "", letters)
        if topic is not None and topic.live and sees(queue) and owner.fits(params, sees):
            found.append(_show_group(owner, REDELIVERED, topic.live, exact=True))
    return found


def _show_group(owner: _Owner, reason: str, count: int, *, exact: bool) -> dict[str, Any]:
    return {
        "kind": owner.kind,
        "owner": owner.name,
        "group": owner.group,
        "topic": owner.topic,
        "reason": reason,
        "count": count,
        "exact": exact,
    }


def _show(letter: DeadLetterRow, topics: Mapping[int, str]) -> dict[str, Any]:
    owner = _owner(letter.cursor, topics.get(letter.topic_id, ""))
    return {
        "id": letter.id,
        "kind": owner.kind,
        "owner": owner.name,
        "group": owner.group,
        "topic": owner.topic,
        "eventId": letter.event_id,
        "position": letter.position,
        **show_refusal(letter),
    }
