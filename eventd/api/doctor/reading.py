"""Reads the input of the checks, in bounded reads. Counts of deliveries and runs say if they are incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventd.api.admin.resources.groups import read_waits
from eventd.api.doctor.facts import Deliveries, Gaps, GroupFacts, LinkFacts, PeerFacts, Runs, Thresholds
from eventd.api.doctor.peer_backlogs import BacklogCounts, DeadLetterCounts, PeerBacklog, earliest, read_peer_backlogs
from eventd.api.doctor.runs import read_group_runs
from eventd.api.doctor.tally import DeliveryTally, read_sample
from eventd.api.framework.operations import Services
from eventd.dynamic.merge import IneffectivePart
from eventd.dynamic.part import subscription_owner
from eventd.egress.cursors import link_name
from eventd.errors import EventdError, SecretUnreadable
from eventd.groups.lookup import find_group, peers_of, read_group_topic
from eventd.log.core.head import read_head
from eventd.log.core.id_conflicts import ConflictCount, read_conflicts
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.missing_records import MissingRecords, count_unstored, find_missing
from eventd.log.core.topic_row import TopicRow
from eventd.log.cursors.cursors import Cursor
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.acknowledgements import count_link_losses
from eventd.log.delivery.refused_requests import count_tls_refusals
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.resources.keyring import check_files
from eventd.resources.kinds.registry import EVENT_GROUP, FEDERATION_SLO
from eventd.resources.slo_configuration import SloConfig, slos
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.links import count_inbound_gaps
from eventd.store.rows.registry import read_resources
from eventd.text.duration import HOUR

PEERS_AT_ONCE = 100
"""How many peers are examined by one read of the database: their backlogs are counted together."""
ROUNDS = 60
"""Maximum number of reads of the log for all peers of a group together; each peer gets at least one."""
MOST_ROUNDS = 12
"""Maximum number of reads of the log for one peer, and for lost records."""


@dataclass(frozen=True, slots=True)
class _GroupContext:
    """The data that an examination of a group starts with.

    `dead_letters`: the number of dead letters by peer, as the name of its link.
    """

    config: GroupConfig
    topic: TopicRow
    head: int
    dead_letters: Mapping[str, int]
    slo: SloConfig | None
    gaps: Sequence[Gaps]
    conflicts: Sequence[ConflictCount]
    runs: Sequence[Runs]
    now: int
    handshakes: Mapping[str, int]


async def read_groups(services: Services, name: str) -> list[GroupFacts]:
    """Return the input for the group `name`, or for all groups in order of name if it is empty.

    Raises NotFound if the group is not declared.
    """
    names = [name] if name else await services.database.read(_read_names)
    aside = (await services.effective.current()).effective.set_aside
    return [await _read_group(services, each, aside) for each in names]


def _read_names(conn: Connection) -> list[str]:
    return sorted(row.name for row in read_resources(conn, EVENT_GROUP.name))


async def _read_group(services: Services, name: str, aside: Sequence[IneffectivePart]) -> GroupFacts:
    context = await services.database.read(_read_context, name, services.clock.now())
    others = [peer for peer in peers_of(context.config) if peer.node_name != context.config.node_name]
    rounds = max(1, min(MOST_ROUNDS, ROUNDS // max(1, len(others))))
    peers: list[PeerFacts] = []
    for start in range(0, len(others), PEERS_AT_ONCE):
        peers += await _read_peers(services, context, others[start : start + PEERS_AT_ONCE], rounds)
    lost, unstored = await _read_lost(services, context)
    owners = tuple(f"{subscription_owner(runs.subscription)}/" for runs in context.runs)
    return GroupFacts(
        name,
        slo=_thresholds(context.slo),
        slo_defined=context.slo is not None,
        has_own=await _has_own(services, context, rounds),
        peers=peers,
        runs=context.runs,
        gaps=context.gaps,
        conflicts=context.conflicts,
        lost=lost,
        unstored=unstored,
        waits=await services.database.read(read_waits, services, context.config, context.topic, context.now),
        aside=[(source, reason) for source, reason in aside if source.startswith(owners)],
        v1_requests=_v1_requests(services, name),
        keys_trouble=await _keys_trouble(services, context.config),
        refused_handshakes=context.handshakes,
        config=context.config,
    )


async def _read_lost(services: Services, context: _GroupContext) -> tuple[list[MissingRecords], int]:
    """Return the ranges without a stored record, in the part of the log that `MOST_ROUNDS` steps read, and the number
    of their events that have not been stored again.
    """
    lost: list[MissingRecords] = []
    before: int | None = None
    for _ in range(MOST_ROUNDS):
        step = await services.database.read(find_missing, context.topic.id, before)
        lost, before = [*lost, *step.ranges], step.before
        if before is None:
            break
    return lost, await services.database.read(count_unstored, context.topic.id, lost)


def _v1_requests(services: Services, group: str) -> int:
    """Return the number of verified v1 requests since this process started; 0 in a command, which gets none."""
    if services.metrics is None:
        return 0
    name = "routerd_eventd_receiver_v1_requests_total"
    return int(services.metrics.registry.get_sample_value(name, {"group": group}) or 0)


async def _keys_trouble(services: Services, config: GroupConfig) -> str:
    """Return why the group's key files cannot be read now; empty if they can.

    Also empty in a command, whose user may not be the node's.
    """
    if services.metrics is None:
        return ""
    try:
        await asyncio.to_thread(check_files, config)
    except SecretUnreadable as error:
        return error.message
    return ""


def _read_context(conn: Connection, name: str, now: int) -> _GroupContext:
    config, topic = find_group(conn, name), read_group_topic(conn, name)
    peers = {link_name(peer.group, peer.node_name) for peer in peers_of(config)}
    dead_letters = {name: count for name, count in count_dead_letters(conn, topic.id).items() if name in peers}
    slo = slos(read_resources(conn, FEDERATION_SLO.name)).get(name)
    runs = read_group_runs(conn, name, now)
    gaps, conflicts = [Gaps(*row) for row in count_inbound_gaps(conn, topic.id)], read_conflicts(conn, topic.id)
    handshakes = count_tls_refusals(conn, name, now - HOUR)
    return _GroupContext(config, topic, read_head(conn).last, dead_letters, slo, gaps, conflicts, runs, now, handshakes)


def _thresholds(slo: SloConfig | None) -> Thresholds:
    if slo is None:
        return Thresholds()
    return Thresholds(slo.lag_warn, slo.lag_fail, slo.expires_soon, slo.max_pending_runs, slo.max_failed_runs)


async def _has_own(services: Services, context: _GroupContext, rounds: int) -> bool:
    """Return whether this node emitted one of the newest live events, of which at most `rounds` pages are read."""
    before = context.head + 1
    for _ in range(rounds):
        found, further = await services.database.read(_look_for_own, context, before)
        if found or further is None:
            return found
        before = further
    return False


def _look_for_own(conn: Connection, context: _GroupContext, before: int) -> tuple[bool, int | None]:
    """Return whether this node emitted one of the newest live events before a position, on one page.

    The second value is the position before which to continue; None at the beginning of the log.
    """
    ask = EventQuery(context.topic.id, now=context.now, before=before, newest=True)
    listed = list_latest(conn, ask)
    return any(not record.path for record in listed.records), listed.seen if listed.more else None


async def _read_peers(
    services: Services, context: _GroupContext, peers: Sequence[PeerConfig], rounds: int
) -> list[PeerFacts]:
    try:
        found = await services.database.read(
            read_peer_backlogs, context.topic, peers, context.dead_letters, context.now
        )
    except EventdError as error:
        if len(peers) == 1:
            return [_unread(peers[0], error)]
        # Of one peer, mostly: what is known of the others must not be lost with it.
        return [facts for peer in peers for facts in await _read_peers(services, context, [peer], rounds)]
    return [await _read_peer(services, context, *each, rounds) for each in zip(peers, found, strict=True)]


async def _read_peer(
    services: Services, context: _GroupContext, peer: PeerConfig, found: PeerBacklog | EventdError, rounds: int
) -> PeerFacts:
    if isinstance(found, EventdError):
        return _unread(peer, found)
    late_from, topic = _thresholds(context.slo).lag_warn * SECOND, context.topic.id
    try:
        tally = await read_sample(services.database.read, topic, found.ledger, rounds, context.now, late_from)
    except EventdError as error:
        return _unread(peer, error)
    name = link_name(peer.group, peer.node_name)
    losses = await services.database.read(count_link_losses, name, context.topic.id)
    cursor = found.ledger.link.cursor
    return PeerFacts(
        peer.group,
        peer.node_name,
        peer.endpoint,
        link=_link(cursor),
        deliveries=_deliveries(found.backlog, found.dead_letters, tally, refuses=_link(cursor).is_refused),
        lost_before=_count_lost(cursor, context.topic),
        losses=losses,
    )


def _count_lost(cursor: Cursor | None, topic: TopicRow) -> int:
    """Return how many unexpired events at most retention removed from a topic before a link has reached them.

    Records of other topics have positions, too. But there are no more events than retention has removed.
    """
    positions = 0 if cursor is None else topic.lost_position - cursor.position
    return max(0, min(positions, topic.evicted_seq))


def _unread(peer: PeerConfig, error: EventdError) -> PeerFacts:
    return PeerFacts(peer.group, peer.node_name, peer.endpoint, trouble=str(error))


def _link(cursor: Cursor | None) -> LinkFacts:
    if cursor is None:
        return LinkFacts(registered=False)
    paused = cursor.paused_at is not None
    return LinkFacts(
        registered=True,
        state=str(cursor.shown_state),
        reason=cursor.reason,
        since=cursor.paused_at if paused else cursor.since,
        last_error=cursor.last_error,
        retry_at=cursor.retry_at,
        paused_by=cursor.paused_by,
        protocol=cursor.protocol,
    )


def _deliveries(
    backlog: BacklogCounts, dead_letters: DeadLetterCounts, tally: DeliveryTally, *, refuses: bool
) -> Deliveries:
    pending = [tally.pending_expires_in, *([] if refuses else [backlog.expires_in])]
    lost = [tally.pending_expires_in, backlog.expires_in, dead_letters.expires_in]
    return Deliveries(
        delivered=tally.delivered + backlog.stale,
        stale=backlog.stale,
        pending=tally.pending + (0 if refuses else backlog.events),
        refused_waiting=backlog.events if refuses else 0,
        letters=dead_letters.retryable,
        refused_again=dead_letters.refused_again,
        taken_id=dead_letters.taken_id,
        spent_letters=dead_letters.spent,
        missing=tuple(event_id for _, event_id in sorted(tally.missing)),
        unproven=tally.unproven,
        expired=tally.expired,
        in_path=tally.in_path,
        refused=tally.refused,
        max_lag=tally.max_lag,
        late_at=tally.late_at,
        late_ago=tally.late_ago,
        expires_in=earliest([*lost, backlog.stale_expires_in, tally.expires_in]),
        pending_expires_in=earliest(pending),
        lost_in=earliest(lost),
        waiting_for=backlog.ready_for,
        looked_at=tally.looked_at,
        in_full=tally.in_full,
        ahead_in_full=backlog.in_full,
    )
