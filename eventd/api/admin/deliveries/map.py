"""The map of a group: nodes, links in each direction, and where the two ends of a link disagree."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.groups.group_map import (
    UNASKED,
    GroupView,
    LinkEnd,
    MapLink,
    MapNode,
    PeerReport,
    in_order,
    make_map,
)
from eventd.groups.lookup import find_group, peers_of
from eventd.groups.own_links import NO_RATES, read_own_links
from eventd.resources.group_configuration import GroupConfig
from eventd.store.engine.database import Connection


class ShowMap(Params):
    """The map of one group."""

    group: str
    wait: int = Field(default=0, ge=0, le=5, description="Seconds to wait for the first answers of peers, at most 5.")


async def show_map(services: Services, params: ShowMap) -> dict[str, Any]:
    group = await services.database.read(find_group, params.group)
    encoded = await services.view(params.group, params.wait)
    if encoded is None:
        view = await services.database.read(_read_view, group, services.clock.now())
    else:
        view = msgspec.json.decode(encoded, type=GroupView)
    found = make_map(view)
    consoles = {peer.node_name: peer.console for peer in group.peers.values()}
    return {
        "group": group.name,
        "node": group.node_name,
        "at": show_time(services.clock.now()),
        "nodes": [_node(found.nodes[name], consoles.get(name, "")) for name in sorted(found.nodes)],
        "links": [_link(link) for link in in_order(found.links.values())],
        "leftOut": found.left_out,
    }


def _read_view(conn: Connection, group: GroupConfig, now: int) -> GroupView:
    """Return the view that can be read from the database alone: the links of this node, without answers of peers."""
    own = read_own_links(conn, group, now, NO_RATES)
    return GroupView(own=own, peers=tuple(PeerReport(node=peer.node_name, answer=UNASKED) for peer in peers_of(group)))


def _node(node: MapNode, console: str) -> dict[str, Any]:
    return {
        "node": node.node,
        "answer": node.answer,
        "ageSeconds": None if node.age is None else round(node.age, 3),
        "via": node.via,
        "console": console,
        "leftOut": node.left_out,
    }


def _link(link: MapLink) -> dict[str, Any]:
    return {
        "from": link.source,
        "to": link.target,
        "sender": _sender(link.sender),
        "receiver": _receiver(link.receiver),
        "findings": link.findings,
    }


def _sender(end: LinkEnd | None) -> dict[str, Any] | None:
    if end is None:
        return None
    state = {"state": end.link.state, "lagEvents": end.link.lag_events, "lagSeconds": end.link.lag_seconds}
    return state | _end(end)


def _receiver(end: LinkEnd | None) -> dict[str, Any] | None:
    return None if end is None else _end(end)


def _end(end: LinkEnd) -> dict[str, Any]:
    return {
        "eventsPerSecond": end.link.events_per_second,
        "silentSeconds": None if end.silent_seconds is None else round(end.silent_seconds, 3),
        "ageSeconds": round(end.age, 3),
        "via": end.via,
    }
