"""The board of links and peers."""

from __future__ import annotations

from tests.support.grafana.panels import (
    BAD,
    NOTICE,
    WARN,
    Column,
    Json,
    Row,
    board,
    heatmap,
    stat,
    state_timeline,
    steps,
    table,
    time_series,
    variable,
)
from tests.support.grafana.queries import Query, increase, quantiles, rate, series, state_code

_LINK = "instance, group, peer"
_NAME = "{{instance}} {{group}} → {{peer}}"
_LATE = steps((60, WARN), (180, BAD))
_STATE = "routerd_eventd_link_state"
_LAG = "routerd_eventd_link_lag_seconds"
_DELIVERY_LAG = "routerd_eventd_outbox_delivery_lag_seconds"


def build() -> Json:
    """Return the board."""
    variables = [
        variable("instance", "Node", "routerd_eventd_log_head_position"),
        variable("group", "Group", 'routerd_eventd_topic_records{instance=~"$instance"}'),
        variable("peer", "Peer", 'routerd_eventd_link_state{instance=~"$instance",group=~"$group"}'),
    ]
    about = "Links of routerd-eventd from node to node: their states, what waits for them, and what peers refuse."
    rows = [_glance(), _links(), _delivery(), _trouble(), _witnesses(), _receiving()]
    return board("routerd-eventd-federation", "routerd-eventd: federation", about, variables, rows)


def _glance() -> Row:
    def links(state: str) -> str:
        return f"sum({series(_STATE, state)}) or vector(0)"

    return Row(
        "At a glance",
        [
            stat("Links running", "Links that deliver, or wait for the next event.", "short", links("state=running")),
            stat(
                "Links down",
                "Links that back off: the peer does not answer, or asks for time. The node tries again by itself.",
                "short",
                links("state=backing-off"),
                limits=steps((1, WARN)),
            ),
            stat(
                "Links blocked",
                "Links that the peer refuses, or that this node cannot use. An operator has to fix the cause.",
                "short",
                links("state=~blocked|failed"),
                limits=steps((1, BAD)),
            ),
            stat(
                "Oldest waiting event",
                "How long the oldest event waits that any link has not delivered. The default"
                " FederationSLO warns at 60 s.",
                "s",
                f"max({series(_LAG)}) or vector(0)",
                limits=_LATE,
            ),
            stat(
                "Delivered",
                "Events a second that peers have acknowledged.",
                "eps",
                f"sum(rate({series('routerd_eventd_outbox_delivery_total', 'status=delivered')}[$__rate_interval]))",
                decimals=1,
            ),
            stat(
                "Dead letters",
                "Events that peers have refused for good in the time that the board shows.",
                "short",
                f"sum(increase({series('routerd_eventd_outbox_delivery_total', 'status=refused')}[$__range]))",
                limits=steps((1, BAD)),
            ),
        ],
    )


def _links() -> Row:
    return Row(
        "Links",
        [
            state_timeline(
                "State of each link",
                "Running, paused by an operator, backing off, blocked by the peer, or failed here.",
                Query(state_code(_STATE, _LINK), _NAME),
            ),
            table(
                "Links",
                "Each link now. Clock: the peer's minus this node's; a peer refuses requests beyond 300 s.",
                ("instance", "group", "peer"),
                [
                    Column("Oldest waits", f"max by ({_LINK}) ({series(_LAG)})", "s", _LATE),
                    Column("State", state_code(_STATE, _LINK), "none", state=True),
                    Column("Waiting", f"max by ({_LINK}) ({series('routerd_eventd_link_lag_events')})", "short"),
                    Column(
                        "Delivered",
                        rate("routerd_eventd_outbox_delivery_total", _LINK, "status=delivered"),
                        "eps",
                    ),
                    Column(
                        "Refused",
                        increase("routerd_eventd_outbox_delivery_total", _LINK, "status=refused"),
                        "short",
                        steps((1, BAD)),
                    ),
                    Column(
                        "Clock",
                        f"max by ({_LINK}) ({series('routerd_eventd_peer_clock_skew_seconds')})",
                        "s",
                    ),
                ],
            ),
        ],
    )


def _delivery() -> Row:
    late = f"{_DELIVERY_LAG}_bucket"
    return Row(
        "Delivery",
        [
            time_series(
                "Lag",
                "How long the oldest event that waits for a peer has waited. Dashed: the default FederationSLO.",
                "s",
                [Query(f"max by ({_LINK}) ({series(_LAG)})", _NAME)],
                limits=_LATE,
            ),
            time_series(
                "Backlog",
                "Events that wait for each peer.",
                "short",
                [Query(f"max by ({_LINK}) ({series('routerd_eventd_link_lag_events')})", _NAME)],
            ),
            time_series(
                "Objectives",
                "The lag that the FederationSLO of each group allows: a warning beyond the first, a"
                " failure beyond the second.",
                "s",
                [Query(f"max by (group, kind) ({series('routerd_eventd_slo_lag_seconds')})", "{{group}} {{kind}}")],
            ),
            time_series(
                "Delivered events",
                "Events a second that each peer has acknowledged.",
                "eps",
                [Query(rate("routerd_eventd_outbox_delivery_total", _LINK, "status=delivered"), _NAME)],
                stacked=True,
            ),
            time_series(
                "Delivered bytes",
                "Bytes a second of the batches that each peer has acknowledged.",
                "Bps",
                [Query(rate("routerd_eventd_outbox_delivered_bytes_total", _LINK), _NAME)],
                stacked=True,
            ),
            time_series(
                "Batches",
                "Attempts a second to deliver a batch.",
                "ops",
                [Query(rate("routerd_eventd_outbox_delivery_attempts_total", _LINK), _NAME)],
            ),
            time_series(
                "Time to delivery",
                "From storing the oldest event of a batch to the acknowledgement of the peer, over"
                " all links that are chosen.",
                "s",
                quantiles(_DELIVERY_LAG),
                log=True,
            ),
            heatmap(
                "Distribution of the time to delivery",
                "The same, as a distribution: the colour is the number of batches.",
                Query(increase_per_step(late), "{{le}}", heatmap=True),
            ),
            time_series(
                "Late batches",
                "Share of batches that a peer acknowledged later than 60 s after their oldest event was stored.",
                "percentunit",
                [
                    Query(
                        f"1 - {rate(late, _LINK, 'le=~60([.]0)?')} / {rate(f'{_DELIVERY_LAG}_count', _LINK)}",
                        _NAME,
                    )
                ],
                limits=steps((0.01, WARN), (0.144, BAD)),
                most=1,
            ),
        ],
    )


def increase_per_step(metric: str) -> str:
    """Return how much each bucket of a histogram grows in one step of the graph."""
    return f"sum by (le) (increase({series(metric)}[$__rate_interval]))"


def _trouble() -> Row:
    return Row(
        "Trouble",
        [
            time_series(
                "Failed attempts",
                "Attempts to open a link or to deliver a batch that failed, by reason. The page on"
                " troubleshooting explains each.",
                "ops",
                [Query(rate("routerd_eventd_outbox_failures_total", f"{_LINK}, reason"), f"{_NAME}: {{{{reason}}}}")],
            ),
            time_series(
                "Refused events",
                "Events that peers have refused for good: dead letters.",
                "eps",
                [Query(rate("routerd_eventd_outbox_delivery_total", _LINK, "status=refused"), f"{_NAME} refused")],
            ),
            time_series(
                "Lost events",
                "Events that retention removed before a peer had them, at most. They are counted when the link passes"
                " the gap, which is when the peer is back.",
                "short",
                [
                    Query(
                        f"sum by ({_LINK}) (increase({series('routerd_eventd_outbox_delivery_total', 'status=lost')}"
                        "[$__rate_interval]))",
                        f"{_NAME} lost",
                    )
                ],
                limits=steps((1, BAD)),
            ),
            time_series(
                "Clocks",
                "The peer's clock minus this node's. Beyond the replay window, 300 s by default, a"
                " peer refuses requests.",
                "s",
                [Query(f"max by ({_LINK}) ({series('routerd_eventd_peer_clock_skew_seconds')})", _NAME)],
                limits=steps((60, WARN), (300, BAD)),
                least=None,
                width=6,
            ),
            time_series(
                "Memory of batches",
                "Bytes of outbound batches in memory, of at most max_outbox_bytes in each process.",
                "bytes",
                [Query(f"sum by (instance) ({series('routerd_eventd_outbox_held_bytes')})", "{{instance}}")],
                width=6,
            ),
            time_series(
                "Links that wait for memory",
                "Links that wait for memory for a batch: max_outbox_bytes is too small for the"
                " number of peers that are behind.",
                "short",
                [Query(f"sum by (instance) ({series('routerd_eventd_outbox_waiting_links')})", "{{instance}}")],
                limits=steps((1, WARN)),
                width=6,
            ),
            time_series(
                "Questions for the map",
                "Questions to peers for their links, for the map of the console, by how they ended.",
                "ops",
                [Query(rate("routerd_eventd_status_queries_total", "result"), "{{result}}")],
                stacked=True,
                width=6,
            ),
        ],
    )


def _witnesses() -> Row:
    return Row(
        "Witnesses of histories",
        [
            time_series(
                "Cosignatures",
                "Answers of peers to offered checkpoints, by result.",
                "ops",
                [
                    Query(
                        rate("routerd_eventd_history_cosignatures_total", f"{_LINK}, result"),
                        f"{_NAME}: {{{{result}}}}",
                    )
                ],
                width=8,
            ),
            time_series(
                "Hashes for relaying",
                "Answers of peers with tiles of the trees that a node relays, by result.",
                "ops",
                [
                    Query(
                        rate("routerd_eventd_history_tile_pulls_total", f"{_LINK}, result"),
                        f"{_NAME}: {{{{result}}}}",
                    )
                ],
                width=8,
            ),
            time_series(
                "Checked events",
                "Events of other nodes that were compared with the trees of those nodes, by result.",
                "ops",
                [
                    Query(
                        rate("routerd_eventd_history_verified_total", "instance, group, result"),
                        "{{group}}: {{result}}",
                    )
                ],
                width=8,
            ),
            time_series(
                "Age of what is not cosigned",
                "How long each peer has not cosigned what was signed.",
                "s",
                [Query(f"max by ({_LINK}) ({series('routerd_eventd_history_witnessed_age_seconds')})", _NAME)],
                limits=steps((3600, WARN)),
                width=8,
            ),
            time_series(
                "Findings",
                "Forks, rollbacks, and what could not be proven: an operator should look at each.",
                "short",
                [
                    Query(
                        f"sum by (instance, group, kind) ({series('routerd_eventd_history_findings_total')})",
                        "{{instance}} {{group}} {{kind}}",
                    )
                ],
                limits=steps((1, WARN)),
                width=8,
            ),
            time_series(
                "Events that wait for their check",
                "Events of other nodes that no checkpoint and no hashes cover yet.",
                "short",
                [Query(series("routerd_eventd_history_waiting_events"), "{{group}}")],
                width=8,
            ),
        ],
    )


def _receiving() -> Row:
    by = "instance, group"
    return Row(
        "Receiving",
        [
            time_series(
                "Received events",
                "Events of peers that are new here, and those answered as duplicates, which is"
                " normal after a lost answer.",
                "eps",
                [
                    Query(rate("routerd_eventd_receiver_accepted_total", by), "{{instance}} {{group}} accepted"),
                    Query(rate("routerd_eventd_receiver_duplicate_total", by), "{{instance}} {{group}} duplicate"),
                ],
            ),
            time_series(
                "Refused requests and events",
                "Requests and events of peers that this node refused, by reason. full: the group is at its ceiling.",
                "ops",
                [
                    Query(
                        rate("routerd_eventd_receiver_reject_total", f"{by}, reason"),
                        "{{instance}} {{group}}: {{reason}}",
                    )
                ],
            ),
            time_series(
                "Requests by protocol",
                "Verified requests over v1 (one event each) and over v2 (a batch each).",
                "reqps",
                [
                    Query(rate("routerd_eventd_receiver_v2_requests_total", by), "{{instance}} {{group}} v2"),
                    Query(rate("routerd_eventd_receiver_v1_requests_total", by), "{{instance}} {{group}} v1"),
                ],
            ),
            time_series(
                "Received batches",
                "Batches a second that were answered with 200, repeated ones included.",
                "ops",
                [Query(rate("routerd_eventd_receiver_batches_total", by), "{{instance}} {{group}}")],
                width=12,
            ),
            table(
                "Id conflicts",
                "Events that were not stored because another event has their id: whose id it is, and"
                " which source used it again.",
                ("instance", "group", "owner", "source"),
                [
                    Column(
                        "Events",
                        f"sum by (instance, group, owner, source) ({series('routerd_eventd_id_conflicts')}) > 0",
                        "short",
                        steps((1, NOTICE)),
                    )
                ],
                width=12,
            ),
        ],
    )
