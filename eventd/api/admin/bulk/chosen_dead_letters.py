"""Retries or drops dead letters that were chosen one by one, of any peers, subscriptions and callbacks together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field

from eventd.api.admin.bulk.bulk_actions import DROPPED, KEPT, RETRIED, BulkAction, BulkTarget, carry_out, find_obstacles
from eventd.api.admin.deliveries.dead_letters import name_letters
from eventd.api.framework.operations import Params, Services
from eventd.api.keys.api_key import OWNER, ApiKey
from eventd.errors import Invalid, NotFound
from eventd.groups.event_course import owner_of_letter
from eventd.log.core.head import lock_head
from eventd.log.core.topic_row import read_topic_names
from eventd.log.delivery.dead_letter_groups import DeadLetterRow, read_letters_by_id
from eventd.log.delivery.dead_letter_scan import DeadLetterFilter
from eventd.log.delivery.repairs import StoredDeadLetter, read_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import announce

MOST_CHOSEN: Final = 200
"""Maximum number of dead letters that are chosen at once: those of one page."""
_GROUP: Final = "group:"


class ChooseLetters(Params):
    """Some dead letters, by id; with one that does not exist or cannot be chosen, nothing is done."""

    by_caller: ClassVar[bool] = True

    ids: list[int] = Field(
        min_length=1, max_length=MOST_CHOSEN, description="The ids of the dead letters, as in the list of all."
    )


class _Chosen(NamedTuple):
    """The chosen dead letters of one owner, and which of them cannot be sent again."""

    target: BulkTarget
    letters: Sequence[StoredDeadLetter]
    obstacles: Mapping[int, str]


async def retry(services: Services, params: ChooseLetters) -> dict[str, Any]:
    return await _settle(services, params, "retry")


async def drop(services: Services, params: ChooseLetters) -> dict[str, Any]:
    return await _settle(services, params, "drop")


async def _settle(services: Services, params: ChooseLetters, action: BulkAction) -> dict[str, Any]:
    now, caller = services.clock.now(), services.key or OWNER
    # Searched apart: all writers would wait for it.
    chosen = await services.database.read(_find, params.ids, action, caller, now)
    name_letters([letter for one in chosen for letter in one.letters])
    results = await services.database.write(_carry_out, chosen, action, now)
    await services.take_over()
    return {
        **{
            name: sum(count for (outcome, _), count in results.items() if outcome == name) for name in _OUTCOMES[action]
        },
        "results": [
            {"outcome": outcome, "reason": reason, "count": count}
            for (outcome, reason), count in sorted(results.items())
        ],
    }


_OUTCOMES: Final[dict[BulkAction, tuple[str, ...]]] = {"retry": (RETRIED, KEPT), "drop": (DROPPED,)}


def _find(conn: Connection, ids: Sequence[int], action: BulkAction, key: ApiKey, now: int) -> list[_Chosen]:
    """Return the dead letters by owner. Raises NotFound, Invalid, and Forbidden for those that the key may not see."""
    rows = read_letters_by_id(conn, ids)
    topics = read_topic_names(conn, sorted({row.topic_id for row in rows}))
    targets: dict[BulkTarget, list[int]] = {}
    for row in rows:
        target = _target(row, topics.get(row.topic_id, ""), now)
        key.require_group(target.group or None)
        targets.setdefault(target, []).append(row.id)
    if missing := sorted(set(ids) - {row.id for row in rows}):
        raise NotFound(f"there is no dead letter {', '.join(map(str, missing[:20]))}", hint="list them again")
    found = []
    for target, own in targets.items():
        letters = read_dead_letters(conn, target.letters.topic_id, ids=own, limit=len(own))
        found.append(_Chosen(target, letters, find_obstacles(conn, action, target, letters, now)))
    return found


def _target(row: DeadLetterRow, topic: str, now: int) -> BulkTarget:
    kind, name = owner_of_letter(row.cursor)
    group = topic.removeprefix(_GROUP) if topic.startswith(_GROUP) else ""
    letters = DeadLetterFilter(row.topic_id, "", "", (), (), None, now)
    match kind:
        case "peer":
            return BulkTarget("peers", group, "", "", "", letters)
        case "subscription":
            return BulkTarget("subscription", group, "", name, "", letters)
        case "callback":
            return BulkTarget("callback", "", "", "", name, letters)
    raise Invalid(f"dead letter {row.id} is of a {kind}, which is not settled here", hint="leave it out")


def _carry_out(conn: Connection, chosen: Sequence[_Chosen], action: BulkAction, now: int) -> Counter[tuple[str, str]]:
    # The head is always locked before cursors; to announce what is sent again does that, too, and wakes the node.
    if action == "drop":
        lock_head(conn)
    else:
        announce(conn)
    results: Counter[tuple[str, str]] = Counter()
    for one in chosen:
        results.update(carry_out(conn, action, one.target, one.letters, one.obstacles, now))
    return results
