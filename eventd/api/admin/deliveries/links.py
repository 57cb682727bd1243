"""Links: the state of those to peers and from senders, and gaps; pauses and resumes links to peers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eventd.api.framework.moments import show_seconds, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.egress.cursors import link_name, pause_all, reconcile
from eventd.groups.link_remedies import remedy_for
from eventd.groups.links import LinkStatus, read_link_statuses, read_repairs_of
from eventd.groups.lookup import find_group, find_peer, peers_of, read_group_topic
from eventd.groups.peer_filters import describe_filter
from eventd.log.core.head import read_head
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.witnesses.findings import read_worst
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.store.engine.database import Connection
from eventd.store.rows.links import InboundGap, InboundLink, read_inbound_gaps, read_inbound_links
from eventd.store.rows.registry import announce, read_resources


class ListLinks(Params):
    """Whose links to list: all of a group, or those to and from one peer."""

    group: str
    peer: str = Field(default="", description="Only this peer, by its node name.")


async def show_links(services: Services, params: ListLinks) -> dict[str, Any]:
    return await services.database.read(read_links, params.group, params.peer, services.clock.now())


def read_links(conn: Connection, group: str, node: str, now: int) -> dict[str, Any]:
    """Return as JSON a group's links to peers and from senders; with `node`, only those to and from it.

    Raises NotFound for a node that neither is a declared peer nor has sent anything.
    """
    config = find_group(conn, group)
    topic = read_group_topic(conn, group)
    inbound, worst = read_inbound_links(conn, topic.id, node=node), read_worst(conn, topic.id)
    only_sends = bool(node and inbound) and node not in config.peer_nodes()
    outbound = [] if only_sends else _read_outbound(conn, config, node, now)
    return {
        "outbound": outbound,
        "inbound": [{**_inbound(group, link), "history": worst.get(link.node, "")} for link in inbound],
    }


def read_outbound(conn: Connection, group: str, node: str, now: int) -> list[dict[str, Any]]:
    """Return as JSON the links to the group's peers, or only to the peer `node`. Raises NotFound."""
    return _read_outbound(conn, find_group(conn, group), node, now)


def _read_outbound(conn: Connection, group: GroupConfig, node: str, now: int) -> list[dict[str, Any]]:
    peers, head, topic = peers_of(group, node), read_head(conn), read_group_topic(conn, group.name)
    worst = read_worst(conn, topic.id)
    links = read_link_statuses(conn, topic, peers, now)
    return [{**_outbound(link, head, now), "history": worst.get(link.peer.node_name, "")} for link in links]


def _outbound(link: LinkStatus, head: Head, now: int) -> dict[str, Any]:
    return {
        "group": link.peer.group,
        "peer": link.peer.node_name,
        "resource": link.peer.name,
        "endpoint": link.peer.endpoint,
        "filter": _filter(link.peer),
        **(_state(link.cursor) if link.cursor else _NEW),
        "remedy": _remedy(link),
        "lagEvents": link.backlog.events,
        "lagSeconds": show_seconds(link.backlog.lag(now)),
        "position": link.position,
        "head": head.last,
        "deadLetters": link.dead_letters,
        "repairs": [_repair(repair) for repair in link.repairs],
    }


def _remedy(link: LinkStatus) -> str:
    """Return the remedy for a link that cannot send; empty for a link that runs or is paused."""
    held = link.cursor is not None and link.state in (LinkState.BLOCKED, LinkState.FAILED, LinkState.BACKING_OFF)
    return remedy_for(link.cursor.reason).words if link.cursor is not None and held else ""


def _filter(peer: PeerConfig) -> dict[str, Any]:
    return {
        "types": list(peer.selector.types),
        "subjectPrefixes": list(peer.selector.subject_prefixes),
        "relay": peer.relay,
        "words": describe_filter(peer),
    }


_NEW: dict[str, Any] = {
    "state": str(LinkState.RUNNING),
    "reason": "new",
    "since": None,
    "protocol": "",
    "attempts": 0,
    "retryAt": None,
    "lastError": "",
    "lastSuccessAt": None,
    "pausedAt": None,
    "pausedBy": "",
}
"""The state of the link to a peer that no node has registered yet."""


def _state(cursor: Cursor) -> dict[str, Any]:
    paused = cursor.paused_at is not None
    return {
        "state": str(cursor.shown_state),
        "reason": cursor.reason,
        "since": show_time(cursor.paused_at if paused else cursor.since),
        "protocol": cursor.protocol,
        "attempts": cursor.attempts,
        "retryAt": None if paused else show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "lastSuccessAt": show_time(cursor.succeeded_at),
        "pausedAt": show_time(cursor.paused_at),
        "pausedBy": cursor.paused_by,
    }


def _repair(cursor: Cursor) -> dict[str, Any]:
    return {
        "position": cursor.position,
        "until": cursor.until,
        "state": str(cursor.shown_state),
        "lastError": cursor.last_error,
        "createdAt": show_time(cursor.created_at),
    }


def _inbound(group: str, link: InboundLink) -> dict[str, Any]:
    return {
        "group": group,
        "node": link.node,
        "epoch": link.mark.epoch,
        "incarnation": link.mark.incarnation,
        "base": link.mark.base,
        "upto": link.mark.upto,
        "updatedAt": show_time(link.updated_at),
        "gaps": link.gaps,
    }


class ListGaps(Params):
    """Which gaps to list: ranges that senders lost or took back; oldest first unless `newest`."""

    group: str
    node: str = Field(default="", description="Only gaps of this sender.")
    newest: bool = Field(default=False, description="Newest first; `after` then continues with older ones.")
    after: int = Field(default=0, ge=0, description="Continue after the gap with this id.")
    limit: Limit = PAGE_SIZE


async def list_gaps(services: Services, params: ListGaps) -> dict[str, Any]:
    return await services.database.read(_read_gaps, params)


def _read_gaps(conn: Connection, params: ListGaps) -> dict[str, Any]:
    topic = read_group_topic(conn, find_group(conn, params.group).name)
    found = read_inbound_gaps(
        conn, topic.id, node=params.node, after=params.after, limit=params.limit + 1, newest=params.newest
    )
    shown, following = cut_page(found, params.limit, lambda gap: gap.id)
    return {"gaps": [_gap(params.group, gap) for gap in shown], "next": following}


def _gap(group: str, gap: InboundGap) -> dict[str, Any]:
    return {
        "id": gap.id,
        "group": group,
        "node": gap.node,
        "epoch": gap.epoch,
        "after": gap.after,
        "upto": gap.upto,
        "reason": gap.reason,
        "recordedAt": show_time(gap.recorded_at),
    }


class Pause(Params):
    """Stop sending to a peer."""

    group: str
    peer: str = Field(description="The peer, by its node name.")
    by: str = Field(default="", max_length=200, description="Shown with the link: the operator's name, or the reason.")


class Resume(Params):
    """Resume sending to a peer at once."""

    group: str
    peer: str = Field(description="The peer, by its node name.")


async def pause(services: Services, params: Pause) -> dict[str, Any]:
    now = services.clock.now()
    await services.database.write(_set_paused, params.group, params.peer, now, at=now, by=params.by)
    await services.take_over()
    return await services.database.read(read_links, params.group, params.peer, now)


async def resume(services: Services, params: Resume) -> dict[str, Any]:
    now = services.clock.now()
    await services.database.write(_set_paused, params.group, params.peer, now, at=None, by="")
    await services.take_over()
    return await services.database.read(read_links, params.group, params.peer, now)


def _set_paused(conn: Connection, group: str, node: str, now: int, *, at: int | None, by: str) -> None:
    """Pause the link to the peer and its repairs at the time `at`, or resume them if it is None.

    A second pause keeps the operator and time of the first. Resuming also clears failures. A missing cursor is created.
    """
    peer = find_peer(find_group(conn, group), node)
    announce(conn)  # locks the head, which is always locked before cursors
    if not read_cursors(conn, name=link_name(group, node)):
        reconcile(conn, read_resources(conn), now)
    cursor = read_cursors(conn, name=link_name(group, node))[0]
    pause_all(conn, [cursor, *read_repairs_of(conn, peer)], now, at=at, by=by)
