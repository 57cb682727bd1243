"""The board of one node, or of several beside each other: database, process, connections, plugins and lake."""

from __future__ import annotations

from tests.support.grafana.federation import increase_per_step
from tests.support.grafana.panels import (
    BAD,
    GOOD,
    NEUTRAL,
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
from tests.support.grafana.queries import Query, mean, quantile, quantiles, rate, series, state_code

_NODE = "{{instance}}"
_COMMIT = "routerd_eventd_commit_duration_seconds"
_CERTIFICATES = "routerd_eventd_certificate_expiry_timestamp_seconds"
_SUBSCRIPTION = "instance, group, subscription"
_PLUGIN = "{{instance}} {{group}} {{subscription}}"


def build() -> Json:
    """Return the board."""
    variables = [
        variable("instance", "Node", "routerd_eventd_log_head_position"),
        variable("group", "Group", 'routerd_eventd_topic_records{instance=~"$instance"}'),
    ]
    about = "Nodes of routerd-eventd: their databases, processes, connections, certificates, plugins and lakes."
    rows = [_glance(), _storing(), _process(), _connections(), _subscriptions(), _work(), _lake()]
    return board("routerd-eventd-node", "routerd-eventd: node", about, variables, rows)


def _glance() -> Row:
    expiry = f"min({series(_CERTIFICATES, whole=True)}) - time()"
    return Row(
        "At a glance",
        [
            stat(
                "Nodes that answer",
                "Nodes, of those chosen, whose metrics Prometheus gets.",
                "short",
                f"count({series('routerd_eventd_log_head_position')}) or vector(0)",
                limits=steps((1, GOOD), base=BAD),
            ),
            stat(
                "Youngest start",
                "Time since the start of the node that started last.",
                "s",
                f"time() - max({series('process_start_time_seconds')})",
            ),
            stat(
                "Stored",
                "Records a second that are stored, over all groups and topics.",
                "eps",
                f"sum(deriv({series('routerd_eventd_log_head_position')}[$__rate_interval]))",
                decimals=1,
            ),
            stat(
                "Commit, p99",
                "One transaction of a hundred takes this long or longer. An event is acknowledged"
                " after its transaction.",
                "s",
                quantile(0.99, _COMMIT),
                limits=steps((0.1, WARN), (0.5, BAD)),
                decimals=3,
            ),
            stat(
                "Next certificate expires",
                "Time until the first certificate expires.",
                "s",
                expiry,
                limits=steps((3 * 86400, WARN), (21 * 86400, GOOD), base=BAD),
                decimals=1,
            ),
            stat(
                "Failed tasks",
                "Tasks that failed by a fault of the node, in the time that the board shows. Right is 0.",
                "short",
                f"sum(increase({series('routerd_eventd_task_failures_total')}[$__range]))",
                limits=steps((1, BAD)),
            ),
        ],
    )


def _storing() -> Row:
    return Row(
        "Storing",
        [
            time_series(
                "Stored records",
                "Records a second, over all groups and topics of a node.",
                "eps",
                [
                    Query(
                        f"sum by (instance) (deriv({series('routerd_eventd_log_head_position')}[$__rate_interval]))",
                        _NODE,
                    )
                ],
            ),
            time_series(
                "Transactions",
                "Seconds of one transaction of the writer.",
                "s",
                quantiles(_COMMIT),
                log=True,
            ),
            heatmap(
                "Distribution of transactions",
                "The same, as a distribution: the colour is the number of transactions.",
                Query(increase_per_step(f"{_COMMIT}_bucket"), "{{le}}", heatmap=True),
            ),
            time_series(
                "Records of a transaction",
                "How many records share one transaction, on average: the group commit at work.",
                "short",
                [Query(mean("routerd_eventd_commit_records", "instance"), _NODE)],
            ),
            time_series(
                "Transactions in the loop",
                "Short transactions that ran in the thread of the event loop: none while disk or node are busy.",
                "ops",
                [Query(rate("routerd_eventd_commits_in_loop_total", "instance"), _NODE)],
            ),
            time_series(
                "Records of each group",
                "Records that are stored, and those over the limits that retention must keep.",
                "short",
                [
                    Query(
                        f"max by (instance, group) ({series('routerd_eventd_topic_records')})",
                        "{{instance}} {{group}}",
                    ),
                    Query(
                        f"max by (instance, group, reason) ({series('routerd_eventd_retention_waiting_events')})",
                        "{{instance}} {{group}} kept for {{reason}}",
                    ),
                ],
            ),
            time_series(
                "Bytes of each group",
                "Bytes of the stored events, which retention.maxBytes limits, and of the hashes of a history.",
                "bytes",
                [
                    Query(
                        f"max by (instance, group) ({series('routerd_eventd_topic_bytes')})", "{{instance}} {{group}}"
                    ),
                    Query(
                        f"max by (instance, group) ({series('routerd_eventd_history_tile_bytes')})",
                        "{{instance}} {{group}} hashes",
                    ),
                ],
            ),
            time_series(
                "Retention",
                "Records a second that retention removes.",
                "eps",
                [Query(rate("routerd_eventd_pruner_pruned_total", "instance, group"), "{{instance}} {{group}}")],
            ),
            time_series(
                "History",
                "Leaves of the trees that are in a signed checkpoint, where a group keeps a history.",
                "short",
                [
                    Query(
                        f"max by (instance, group) ({series('routerd_eventd_history_size')})",
                        "{{instance}} {{group}}",
                    )
                ],
            ),
            time_series(
                "Sealing",
                "Leaves a second that get into a checkpoint: where a node lags, fewer than the events that come in.",
                "eps",
                [
                    Query(
                        f"sum by (instance) (deriv({series('routerd_eventd_history_size')}[$__rate_interval]))",
                        _NODE,
                    )
                ],
            ),
            time_series(
                "Lag of the history",
                "How long the first record of a checkpoint had waited for it: a second, unless the node lags.",
                "s",
                [
                    Query(
                        f"max by (instance, group) ({series('routerd_eventd_history_seal_lag_seconds')})",
                        "{{instance}} {{group}}",
                    )
                ],
                limits=steps((60, WARN)),
            ),
            time_series(
                "Write-ahead log",
                "Size of SQLite's write-ahead log. It grows while a reader holds an old snapshot.",
                "bytes",
                [Query(f"max by (instance) ({series('routerd_eventd_sqlite_wal_bytes')})", _NODE)],
                limits=steps((512 * 1024**2, WARN)),
            ),
            time_series(
                "Standby",
                "1 while a node waits for another one to end, which serves the database.",
                "none",
                [Query(f"max by (instance) ({series('routerd_eventd_standby')})", _NODE)],
                most=1,
                width=24,
            ),
        ],
    )


def _process() -> Row:
    return Row(
        "Process",
        [
            time_series(
                "CPU",
                "Cores in use by all processes of a node.",
                "short",
                [Query(rate("process_cpu_seconds_total", "instance"), _NODE)],
            ),
            time_series(
                "Memory",
                "Resident memory of all processes of a node.",
                "bytes",
                [Query(f"max by (instance) ({series('process_resident_memory_bytes')})", _NODE)],
            ),
            time_series(
                "Open files",
                "Share of the limit of open files and connections that is in use.",
                "percentunit",
                [
                    Query(
                        f"max by (instance) ({series('process_open_fds')} / {series('process_max_fds')})",
                        _NODE,
                    )
                ],
                limits=steps((0.8, WARN), (0.95, BAD)),
                most=1,
            ),
        ],
    )


def _connections() -> Row:
    by = "instance, group"
    return Row(
        "Connections and certificates",
        [
            time_series(
                "Events published over WebSockets",
                "Events of programs that keep a connection open to publish, by result.",
                "ops",
                [Query(rate("routerd_eventd_published_events_total", "result"), "{{result}}")],
                width=12,
                stacked=True,
            ),
            time_series(
                "Publishing programs",
                "Open connections over which programs publish to groups.",
                "short",
                [Query(f"sum by (instance) ({series('routerd_eventd_publish_connections')})", "{{instance}}")],
                width=12,
            ),
            time_series(
                "Open connections",
                "Connections of each listener; without a group, of the API.",
                "short",
                [
                    Query(
                        f"max by ({by}) ({series('routerd_eventd_listener_connections', whole=True)})",
                        "{{instance}} {{group}}",
                    )
                ],
            ),
            time_series(
                "Connections turned away",
                "Connections that a listener refused or aborted, by reason. full: all were held by"
                " peers and clients with a key.",
                "ops",
                [
                    Query(
                        rate("routerd_eventd_listener_turned_away_total", f"{by}, reason", whole=True),
                        "{{instance}} {{group}}: {{reason}}",
                    )
                ],
            ),
            time_series(
                "Local socket",
                "Open connections over the local socket, which routerctl uses on the same machine.",
                "short",
                [Query(f"max by (instance) ({series('routerd_eventd_local_socket_connections')})", _NODE)],
            ),
            table(
                "Certificates",
                "The API's (no group, no peer), a listener's (group), one shown to a peer (both), or"
                " to the endpoint of a callback.",
                ("instance", "group", "peer"),
                [
                    Column(
                        "Expires in",
                        f"min by (instance, group, peer) ({series(_CERTIFICATES, whole=True)}) - time()",
                        "s",
                        steps((3 * 86400, WARN), (21 * 86400, GOOD), base=BAD),
                    )
                ],
                least_first=True,
            ),
        ],
    )


def _subscriptions() -> Row:
    def of(metric: str) -> str:
        return f"max by ({_SUBSCRIPTION}) ({series(f'routerd_eventd_subscription_{metric}')})"

    return Row(
        "Subscriptions",
        [
            state_timeline(
                "State of each subscription",
                "Running, paused by an operator, backing off after a failed run, or blocked: its plugin cannot run.",
                Query(state_code("routerd_eventd_subscription_state", _SUBSCRIPTION), _PLUGIN),
            ),
            time_series(
                "Runs",
                "Runs of plugins by how they ended. parked: the last attempt failed, and the event is a dead letter.",
                "ops",
                [Query(rate("routerd_eventd_subscription_runs_total", "status"), "{{status}}")],
                stacked=True,
            ),
            time_series(
                "Events of runs",
                "Events a second that were passed to plugins, by how the run ended.",
                "eps",
                [Query(rate("routerd_eventd_subscription_run_events_total", "status"), "{{status}}")],
                stacked=True,
            ),
            time_series(
                "Time of a run",
                "Seconds of one run of a plugin.",
                "s",
                [
                    Query(quantile(0.95, "routerd_eventd_subscription_run_seconds", _SUBSCRIPTION), _PLUGIN),
                ],
            ),
            time_series(
                "Events that wait for a plugin",
                "Waiting events of each subscription, counted up to 1,000.",
                "short",
                [Query(of("waiting_events"), _PLUGIN)],
                width=12,
            ),
            time_series(
                "Oldest event that waits for a plugin",
                "How long the oldest waiting event of each subscription has waited.",
                "s",
                [Query(of("waiting_seconds"), _PLUGIN)],
                width=12,
            ),
        ],
        collapsed=True,
    )


def _work() -> Row:
    return Row(
        "Actions and jobs",
        [
            time_series(
                "Actions",
                "Requests for actions of operators, by result. refused: without a valid key, or with one that may not.",
                "ops",
                [Query(rate("routerd_eventd_actions_total", "result"), "{{result}}")],
                stacked=True,
            ),
            time_series(
                "Bulk jobs",
                "Bulk jobs by state; finished ones are deleted after a week.",
                "short",
                [Query(f"sum by (state) ({series('routerd_eventd_jobs')})", "{{state}}")],
            ),
            time_series(
                "Steps of jobs",
                "Steps of bulk jobs: done, or failed and tried again.",
                "ops",
                [Query(rate("routerd_eventd_job_steps_total", "result"), "{{result}}")],
            ),
            time_series(
                "Failed tasks",
                "Tasks that failed by a fault of the node, by what happened then. Right is 0.",
                "ops",
                [Query(rate("routerd_eventd_task_failures_total", "instance, status"), "{{instance}} {{status}}")],
                width=12,
                height=6,
            ),
            time_series(
                "Spans of traces",
                "Exported, not taken by the collector, or dropped: too many waited. Nothing while tracing is off.",
                "ops",
                [Query(rate("routerd_eventd_trace_spans_total", "instance, result"), "{{instance}} {{result}}")],
                width=12,
                height=6,
            ),
        ],
        collapsed=True,
    )


def _lake() -> Row:
    age = f"time() - {series('routerd_eventd_lake_complete_until_seconds')}"
    return Row(
        "Lake",
        [
            stat(
                "Behind",
                "The lake lacks what the node stored in this time.",
                "s",
                f"max({age})",
                limits=steps((300, WARN), (900, BAD), base=NEUTRAL),
                height=8,
            ),
            time_series(
                "Age of the lake",
                "How far the lake is behind each node.",
                "s",
                [Query(f"max by (instance) ({age})", _NODE)],
                limits=steps((900, WARN)),
                width=10,
            ),
            time_series(
                "State of shipping",
                "1 for the state that shipping is in.",
                "none",
                [
                    Query(
                        f"max by (instance, state) ({series('routerd_eventd_lake_state')})",
                        "{{instance}} {{state}}",
                    )
                ],
                width=10,
                most=1,
            ),
            time_series(
                "Rows",
                "Rows a second that are shipped, by ledger.",
                "short",
                [Query(rate("routerd_eventd_lake_rows_total", "book"), "{{book}}")],
                stacked=True,
                width=6,
            ),
            time_series(
                "Bytes",
                "Bytes a second of the segments that are shipped, by ledger.",
                "Bps",
                [Query(rate("routerd_eventd_lake_bytes_total", "book"), "{{book}}")],
                stacked=True,
                width=6,
            ),
            time_series(
                "Segments",
                "Segments a second: shipped, compacted into the archive, and removed.",
                "ops",
                [
                    Query(rate("routerd_eventd_lake_segments_total", "instance"), "{{instance}} shipped"),
                    Query(rate("routerd_eventd_lake_compacted_segments_total", "instance"), "{{instance}} compacted"),
                    Query(rate("routerd_eventd_lake_removed_segments_total", "instance"), "{{instance}} removed"),
                ],
                width=6,
            ),
            time_series(
                "Failures",
                "Failed attempts to ship, compact or delete, by reason.",
                "ops",
                [Query(rate("routerd_eventd_lake_failures_total", "instance, reason"), "{{instance}}: {{reason}}")],
                width=6,
            ),
        ],
        collapsed=True,
    )
