"""The links of this node in one group, in the form in which the node shows them on maps and reports them to
members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventd.groups.links import LinkStatus, read_link_statuses
from eventd.groups.lookup import peers_of, read_group_topic
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.links import read_inbound_links
from federation.peers import NODE_NAME
from federation.status import IN, MOST_LINKS, OUT, STATES, LinkReport, NodeReport


@dataclass(frozen=True, slots=True)
class LinkRates:
    """The events per second of a group's links as means of the last minute, by the other node, as far as known.

    The senders in `received` include those over v1, which have no mark.
    """

    sent: Mapping[str, float]
    received: Mapping[str, float]


NO_RATES = LinkRates({}, {})
"""The rates in a process in which no node runs, such as a command: none."""


def read_own_links(conn: Connection, group: GroupConfig, now: int, rates: LinkRates) -> NodeReport:
    """Return this node's report: up to `MOST_LINKS` links to declared peers, and as many from senders.

    Of the senders, declared peers come first, then those that sent most recently, because a member can invent names.
    """
    topic, peers = read_group_topic(conn, group.name), peers_of(group)
    outbound = [_out(link, now, rates) for link in read_link_statuses(conn, topic, peers[:MOST_LINKS], now)]
    heard = {link.node: link.updated_at for link in read_inbound_links(conn, topic.id)}
    for node in rates.received:
        if node != group.node_name and NODE_NAME.fullmatch(node):
            heard.setdefault(node, 0)  # over v1, which has no marks
    declared = {peer.node_name for peer in peers}
    found = sorted(heard.items(), key=lambda sender: (sender[0] not in declared, -sender[1], sender[0]))
    inbound = [
        LinkReport(
            peer=node,
            direction=IN,
            events_per_second=_rounded(rates.received.get(node)),
            last_seconds=_age(at, now) if at else None,
        )
        for node, at in found[:MOST_LINKS]
    ]
    left_out = max(0, len(peers) - MOST_LINKS) + max(0, len(found) - MOST_LINKS)
    return NodeReport(node=group.node_name, links=(*outbound, *inbound), left_out=left_out)


def _out(link: LinkStatus, now: int, rates: LinkRates) -> LinkReport:
    state, node = str(link.state), link.peer.node_name
    succeeded = link.cursor.succeeded_at if link.cursor else None
    return LinkReport(
        peer=node,
        direction=OUT,
        state=state if state in STATES else "unknown",
        lag_events=link.backlog.events,
        lag_seconds=_seconds(link.backlog.lag(now)),
        events_per_second=_rounded(rates.sent.get(node)),
        last_seconds=None if succeeded is None else _age(succeeded, now),
        state_seconds=_age(link.cursor.since, now) if link.cursor else 0.0,
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


def _age(at: int, now: int) -> float:
    return _seconds(max(0, now - at))


def _seconds(duration: int) -> float:
    return round(duration / SECOND, 3)
