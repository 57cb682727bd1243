"""The steps of bulk jobs: a step retries or drops some dead letters, like the operations for single dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

from eventd.api.admin.callbacks import callback_resends
from eventd.api.admin.callbacks.callbacks import read_registered, resends_of
from eventd.api.admin.deliveries import dead_letters
from eventd.api.admin.subscriptions import subscriptions
from eventd.api.admin.subscriptions.subscription_states import find_subscription
from eventd.egress.cursors import PEER, link_name, subscription_name
from eventd.errors import Unavailable
from eventd.groups.links import read_repairs_of
from eventd.groups.lookup import find_group, find_peer, read_group_topic
from eventd.log.cursors.dead_letters import delete_dead_letters
from eventd.log.delivery.dead_letter_scan import DeadLetterFilter
from eventd.log.delivery.repairs import StoredDeadLetter, read_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.rows.bulk_jobs import BulkJob
from eventd.store.rows.registry import announce

BulkAction = Literal["retry", "drop"]
OwnerKind = Literal["peers", "subscription", "callback"]
STEP_LETTERS: Final = 500
"""Maximum number of dead letters of one step."""
MOST_REPAIRS: Final = 16
"""Maximum number of unfinished repairs of a peer, backfills of a subscription or resends of a callback at which
another step may start: all of them send at the same time."""
RETRIED, DROPPED, KEPT = "retried", "dropped", "kept"
EXPIRED: Final = "it has expired"


class MustWait(Unavailable):
    """The step starts no further deliveries until earlier ones have finished."""


class BulkTarget(NamedTuple):
    """Whose dead letters a job concerns: those of the peers of `group` (of one, if `peer` is given), of a subscription,
    or of a callback; `letters` says which of them."""

    owner: OwnerKind
    group: str
    peer: str
    subscription: str
    callback: str
    letters: DeadLetterFilter

    @classmethod
    def of(cls, job: BulkJob) -> Self:
        """Return the target of a job."""
        return cls(**{**job.target, "letters": DeadLetterFilter.from_json(job.target["letters"])})

    def to_json(self) -> dict[str, Any]:
        """Return the target as JSON values."""
        return {**self._asdict(), "letters": self.letters.to_json()}


class Owner(NamedTuple):
    """The owner of dead letters. `cursor`: the cursor that they belong to; if empty, all cursors of `kind`."""

    group: str
    topic_id: int
    cursor: str
    kind: str


def find_owner(conn: Connection, group: str, peer: str, subscription: str, callback: str, now: int) -> Owner:
    """Return the owner of the dead letters of a callback, a subscription, a peer, or all peers of a group.

    Raises NotFound for one that is not declared, and Conflict for one that no node has registered.
    """
    if callback:
        cursor = read_registered(conn, callback)[1]
        return Owner("", cursor.topic_id, cursor.name, "")
    if subscription:
        one = find_subscription(conn, subscription, group)
        topic = read_group_topic(conn, one.group)
        return Owner(one.group, topic.id, subscription_name(one.group, one.name), "")
    found = find_group(conn, group)
    name = link_name(found.name, find_peer(found, peer).node_name) if peer else ""
    return Owner(found.name, read_group_topic(conn, found.name).id, name, PEER)


Results = Mapping[tuple[str, str], int]
"""Numbers of dead letters by outcome and reason."""


def find_obstacles(
    conn: Connection, action: BulkAction, target: BulkTarget, letters: Sequence[StoredDeadLetter], now: int
) -> dict[int, str]:
    """Return the dead letters of a callback that cannot be sent again, by row id, with the reason.

    To be read before the transaction of the step, since it takes long, and all writers would wait. Peers and
    subscriptions have none here.
    """
    if action == "drop" or target.owner != "callback" or not letters:
        return {}
    callback, cursor = read_registered(conn, target.callback)
    _, kept = callback_resends.sort_letters(conn, callback, cursor, letters, now)
    return {each["id"]: each["reason"] for each in kept}


def carry_out(
    conn: Connection,
    action: BulkAction,
    target: BulkTarget,
    letters: Sequence[StoredDeadLetter],
    obstacles: Mapping[int, str],
    now: int,
) -> Results:
    """Retry or drop these dead letters, as far as they still exist; return what became of them.

    `obstacles`: see `find_obstacles`. The head must be locked. Raises `MustWait` if too many earlier deliveries are
    not finished, and NotFound.
    """
    if not letters:
        return {}
    ids = [letter.id for letter in letters]
    present = read_dead_letters(conn, target.letters.topic_id, ids=ids, limit=len(ids))
    if action == "drop":
        delete_dead_letters(conn, [letter.id for letter in present])
        return _count(DROPPED, (letter.reason for letter in present))
    match target.owner:
        case "peers":
            again, kept = _retry_peers(conn, target.group, present, now)
        case "subscription":
            again, kept = _retry_subscription(conn, target, present, now)
        case "callback":
            again, kept = _retry_callback(conn, target, present, obstacles, now)
    return {**_count(RETRIED, (letter.reason for letter in again)), **_count(KEPT, map(_plain, kept))}


def _count(outcome: str, reasons: Iterable[str]) -> Counter[tuple[str, str]]:
    return Counter((outcome, reason) for reason in reasons)


def _plain(reason: str) -> str:
    """Return the reason without the time in it, so that there are few different reasons."""
    return EXPIRED if reason.startswith("it expired at ") else reason


_Sorted = tuple[Sequence[StoredDeadLetter], Sequence[str]]
"""Dead letters that are sent again, and those that are not, each with the reason."""


def _require_few(deliveries: Sequence[object], what: str) -> None:
    if len(deliveries) >= MOST_REPAIRS:
        raise MustWait(f"{what} has {len(deliveries)} unfinished deliveries of earlier retries")


def _retry_peers(conn: Connection, group: str, letters: Sequence[StoredDeadLetter], now: int) -> _Sorted:
    judged = dead_letters.judge_letters(conn, group, letters, now)
    for node in judged.again:
        _require_few(read_repairs_of(conn, judged.links[node].peer), f"peer {group}/{node}")
    dead_letters.start_retries(conn, judged, now)
    return [letter for some in judged.again.values() for letter in some], [reason for _, reason in judged.kept]


def _retry_subscription(conn: Connection, target: BulkTarget, letters: Sequence[StoredDeadLetter], now: int) -> _Sorted:
    one = find_subscription(conn, target.subscription, target.group)
    cursor = subscriptions.read_registered(conn, one, now)
    again, kept = subscriptions.judge_letters(conn, one, letters, now)
    if again:
        _require_few(subscriptions.backfills_of(conn, one), f"subscription {one.name}")
        subscriptions.start_backfill(conn, one, cursor, [letter.position for letter in again], now)
        delete_dead_letters(conn, [letter.id for letter in again])
    return again, [each["reason"] for each in kept]


def _retry_callback(
    conn: Connection, target: BulkTarget, letters: Sequence[StoredDeadLetter], obstacles: Mapping[int, str], now: int
) -> _Sorted:
    callback, cursor = read_registered(conn, target.callback)
    again = [letter for letter in letters if not obstacles.get(letter.id)]
    if again:
        _require_few(resends_of(conn, callback.config.name), f"callback {callback.config.name}")
        announce(conn)
        callback_resends.start_at(conn, callback, cursor, sorted({letter.position for letter in again}), now)
        delete_dead_letters(conn, [letter.id for letter in again])
    return again, [reason for letter in letters if (reason := obstacles.get(letter.id, ""))]
