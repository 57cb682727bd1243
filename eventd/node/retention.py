"""Evicts records and deletes old rows while a node serves.

Retention is applied to groups' topics (`eventd.log.retention.evict`), the sweep applies the limits of topics of records
(`eventd.log.topics.limits`), and old rows and the data of deleted topics are removed. Each is a task of its own: none
waits until another has removed much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from eventd.errors import NotFound
from eventd.groups.lookup import read_group_topic
from eventd.groups.retention import STEPS, EvictionRound, eviction_pace
from eventd.ingress.batch import MOST_UNDECLARED
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.losses import join_oldest, read_crowded
from eventd.log.core.pace import Pace
from eventd.log.core.topic_row import read_topic
from eventd.log.history.pruning import TileLimits, delete_dropped, delete_tiles, find_surplus
from eventd.log.history.trees import delete_checkpoints, read_surplus_checkpoints
from eventd.log.retention.evict import CHUNK, RowRetention, delete_old_rows, delete_selections, read_unused_selections
from eventd.log.retention.prefix import STEP_RECORDS
from eventd.log.routemaster.tokens import DeleteExpiredTokens, read_expired
from eventd.log.topics.deleted_topics import PAGE, STEP_ROWS, ClearStep, clear_deleted, read_cleared, remove_cleared
from eventd.log.topics.limits import is_due, sweep
from eventd.node.attempts import Attempts
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import GroupConfig, effective, topic_of
from eventd.runtime.clock import SECOND, Moment
from eventd.settings.model import Settings
from eventd.settings.values import entries_of
from eventd.store.engine.database import Connection
from eventd.store.parts.parts import delete_old_parts
from eventd.store.rows.actions import KEY_SECONDS, delete_old_actions, delete_old_answers
from eventd.store.rows.bulk_jobs import delete_old_jobs
from eventd.store.rows.callback_attempts import delete_old_attempts
from eventd.store.rows.console_sessions import delete_ended_sessions
from eventd.store.rows.links import delete_links, stale_links
from eventd.store.rows.registry import read_resources
from eventd.store.rows.returned_events import delete_marks, read_unused_marks
from eventd.store.rows.routemaster import drop_passed, has_passed
from eventd.store.rows.runs import delete_old_runs
from eventd.store.rows.tokens import digest_of
from eventd.store.rows.verifications import delete_old_verifications

UNDECLARED_AGE = 30 * 24 * 3600 * SECOND
"""How long the mark of a sender that is not a declared peer is kept after its last batch (microseconds)."""
JOB_AGE = 7 * 24 * 3600 * SECOND
"""How long a bulk job is kept after it finished, in microseconds."""
VERIFICATION_AGE = 90 * 24 * 3600 * SECOND
"""How long a verification, the comparison with a peer, is kept after it began, in microseconds."""
PARTS = 500
"""Maximum number of parts (DynamicConfigParts) that are deleted in one step."""
LEAST_ROWS = 100
"""Rows that a step deletes at least, however slow the disk is."""
SWEEP_SECONDS = 1.0
"""Seconds between two sweeps of topics. Readers do not see expired records, but they still take up room."""


class Retention:
    """The chores of one node that evict records and delete rows."""

    def __init__(self, log: EventLog, settings: Settings, metrics: Metrics) -> None:
        self._log = log
        self._attempts = Attempts(log.clock.monotonic)
        self._settings = settings
        self._metrics = metrics
        self._evicting = eviction_pace(log)
        self._deleting = Pace(log, size=CHUNK, least=LEAST_ROWS, most=4 * CHUNK)
        self._clearing = Pace(log, size=STEP_ROWS, least=LEAST_ROWS, most=CHUNK)
        self._sweeping = Pace(log, size=STEP_RECORDS, least=STEP_RECORDS, most=STEP_RECORDS)

    async def apply_for_ever(self, groups: Callable[[], Iterable[GroupConfig]]) -> None:
        """Apply retention to all groups, at the start and then at its interval, until cancelled."""
        while True:
            await self._apply(groups())
            await self._log.clock.sleep(self._settings.prune_interval)

    async def _apply(self, groups: Iterable[GroupConfig]) -> None:
        """Apply their retention to all groups, some of each in turn, until none has more to evict."""
        one_round = EvictionRound(self._log, self._evicting)
        due = deque(group.name for group in groups if group.retention.is_bounded)
        while due:
            name = due.popleft()
            await self._attempts.make(f"retention of group {name}", self._evict(one_round, name, due))

    async def _evict(self, one_round: EvictionRound, name: str, due: deque[str]) -> None:
        """Evict some events of a group, which is due again if there may be more."""
        try:
            evicted = await one_round.visit(name, steps=STEPS)
        except NotFound:  # deleted meanwhile
            return
        self._metrics.pruned(name, evicted.records)
        if evicted.more:
            due.append(name)

    async def delete_rows_for_ever(self) -> None:
        """Delete old rows of all tables, at the start and then at the interval of retention, until cancelled.

        A round deletes what is old when it begins, and rests for no longer than an interval: so rows are deleted as
        fast as they become old, however busy the node is.
        """
        while True:
            await self._attempts.make("old rows", self._delete_rows())
            await self._log.clock.sleep(self._settings.prune_interval)

    async def _delete_rows(self) -> None:
        hurries_from = self._log.clock.monotonic() + self._settings.prune_interval
        # The ledgers hold rows of all groups, including those that another process of this database serves.
        declared = await self._log.database.read(_read_declared)
        ids = max((group.retention.ids for group in declared), default=0)
        day = 24 * 3600 * SECOND
        limits = RowRetention(
            ids=ids or day,
            batches=self._settings.batch_retention,
            dead_letters=self._settings.dead_letter_retention,
            receipts=max(day, ids),
        )
        clock = self._log.clock
        await self._delete_all(partial(_delete_old_rows, limits=limits, at=Moment.of(clock)), hurries_from)
        unused = await self._log.database.read(read_unused_selections, self._log.clock.now() - limits.batches)
        if unused:
            await self._log.database.write(delete_selections, unused)
        for topic_id in await self._log.database.read(read_crowded):
            await self._log.database.write(join_oldest, topic_id)
        await self._delete_older(delete_old_runs, self._settings.run_retention, hurries_from)
        await self._delete_older(delete_old_parts, self._settings.part_retention, hurries_from, most=PARTS)
        await self._delete_older(delete_old_attempts, self._settings.attempt_retention, hurries_from)
        await self._delete_older(delete_old_jobs, JOB_AGE, hurries_from)
        await self._delete_older(delete_old_verifications, VERIFICATION_AGE, hurries_from)
        await self._delete_older(delete_old_actions, self._settings.action_retention, hurries_from)
        expired = clock.steady() - KEY_SECONDS * SECOND
        await self._delete_all(lambda conn, size: delete_old_answers(conn, expired, min(size, CHUNK)), hurries_from)
        while unused_marks := await self._log.database.read(read_unused_marks, CHUNK):
            await self._log.database.write(delete_marks, unused_marks)
        while surplus := await self._log.database.read(read_surplus_checkpoints, clock.now(), CHUNK):
            await self._log.database.write(delete_checkpoints, surplus)
        for group in declared:
            await self._prune_tiles(group)
        while await self._log.database.write(delete_dropped):
            pass
        await self._log.database.write(delete_ended_sessions, clock.now())
        if await self._log.database.read(has_passed):
            await self._log.database.write(_drop_passed)
        await self._delete_tokens()
        for group in declared:
            await self._delete_undeclared_links(group)

    async def _prune_tiles(self, group: GroupConfig) -> None:
        """Delete the oldest hashes of a group's history that are over its limits."""
        limits = TileLimits(group.history_max_bytes, group.retention.max_age)
        topic_id = (await self._log.database.read(read_group_topic, group.name)).id
        while surplus := await self._log.database.read(find_surplus, topic_id, limits, self._log.clock.now()):
            await self._log.database.write(delete_tiles, surplus)

    async def _delete_tokens(self) -> None:
        """Delete expired tokens.

        Tokens of the settings keep their rows: without its row, an expired token would be created again, as a valid
        one, at the next start.
        """
        kept = set(map(digest_of, entries_of(self._settings.routemaster_clients.get_secret_value())))
        expired = await self._log.database.read(read_expired, self._log.clock.now(), kept)
        for first in range(0, len(expired), CHUNK):
            await self._log.submit(DeleteExpiredTokens(expired[first : first + CHUNK]))

    async def _delete_older(
        self, delete: Callable[..., int], age: int, hurries_from: float, *, most: int = CHUNK
    ) -> None:
        """Delete rows that ended longer ago than `age` (µs), at most `most` at a time; `delete` deletes them."""
        before = self._log.clock.now() - age
        await self._delete_all(lambda conn, size: delete(conn, before, min(size, most)), hurries_from)

    async def _delete_all(self, delete: Callable[[Connection, int], int], hurries_from: float) -> None:
        """Delete rows until `delete` finds none; without rests from this time of the monotonic clock on."""
        clock, is_left = self._log.clock, True
        while is_left:
            is_behind = clock.monotonic() >= hurries_from
            is_left = await self._deleting.write_step(delete, amount=int, is_behind=is_behind) > 0

    async def _delete_undeclared_links(self, group: GroupConfig) -> None:
        """Delete old and surplus marks of undeclared senders: a member with a key for any node can invent names.

        A deleted mark loses no event: its sender starts from the beginning, and ids show what is stored already.
        """
        database, now = self._log.database, self._log.clock.now()
        peers = group.peer_nodes()
        topic_id, stale = await database.read(_read_stale, group.name, peers, now)
        for first in range(0, len(stale), CHUNK):
            await database.write(_delete_links, topic_id, stale[first : first + CHUNK])

    async def remove_deleted_for_ever(self) -> None:
        """Remove the data of deleted topics at the start and then at the retention interval, until cancelled.

        It is separate from retention, which must not wait until much data is removed.
        """
        while True:
            await self._attempts.make("removal of deleted topics", self._remove_deleted())
            await self._log.clock.sleep(self._settings.prune_interval)

    async def _remove_deleted(self) -> None:
        """Remove the data of all deleted topics. The row in `topics` itself is deleted one round later."""
        bare = await self._read_bare()
        after: str | None = ""
        while after is not None:
            cleared = await self._clearing.write_step(
                partial(_clear_deleted, after=after, now=self._log.clock.now()), amount=_rows_of
            )
            after = None if cleared is None else cleared.upto
        for first in range(0, len(bare), PAGE):
            page = bare[first : first + PAGE]
            await self._clearing.write_step(partial(_remove_cleared, bare=page), amount=int)

    async def _read_bare(self) -> list[str]:
        bare: list[str] = []
        while page := await self._log.database.read(read_cleared, bare[-1] if bare else ""):
            bare += page
        return bare

    async def sweep_for_ever(self) -> None:
        """Remove expired records, and records over a lowered limit, from topics of records, until cancelled."""
        while True:
            await self._attempts.make("sweep of topics", self._sweep())
            await self._log.clock.sleep(SWEEP_SECONDS)

    async def _sweep(self) -> None:
        database, clock = self._log.database, self._log.clock
        hurries_from = clock.monotonic() + self._settings.prune_interval
        while await database.read(is_due, clock.now()):
            is_behind = clock.monotonic() >= hurries_from
            await self._sweeping.write_step(partial(_sweep, now=clock.now()), amount=int, is_behind=is_behind)


def _delete_old_rows(conn: Connection, chunk: int, *, limits: RowRetention, at: Moment) -> int:
    return delete_old_rows(conn, limits, now=at.wall, steady=at.steady, chunk=chunk)


def _clear_deleted(conn: Connection, chunk: int, *, after: str, now: int) -> ClearStep | None:
    return clear_deleted(conn, after, now=now, chunk=chunk)


def _rows_of(step: ClearStep | None) -> int:
    return 0 if step is None else step.rows


def _remove_cleared(conn: Connection, _: int, *, bare: list[str]) -> int:
    remove_cleared(conn, bare)
    return 0  # of pages, not of rows: it says nothing about the size of a step


def _sweep(conn: Connection, _: int, *, now: int) -> int:
    return sweep(conn, now)


def _read_declared(conn: Connection) -> list[GroupConfig]:
    return list(effective(read_resources(conn)).values())


def _read_stale(conn: Connection, group: str, peers: set[str], now: int) -> tuple[int, list[tuple[str, int]]]:
    try:
        topic_id = read_topic(conn, topic_of(group)).id
    except NotFound:  # deleted meanwhile, or not loaded yet
        return 0, []
    return topic_id, stale_links(conn, topic_id, peers, most=MOST_UNDECLARED, before=now - UNDECLARED_AGE)


def _drop_passed(conn: Connection) -> None:
    lock_head(conn)
    drop_passed(conn)


def _delete_links(conn: Connection, topic_id: int, stale: list[tuple[str, int]]) -> None:
    lock_head(conn)  # before the marks, in the same order as a batch
    delete_links(conn, topic_id, stale)
