"""All boards by the name of their file, and the metrics that none of them shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from tests.support.grafana import federation, node, topics
from tests.support.grafana.panels import Json
from tests.support.source import ROOT

FOLDER = ROOT / "deploy" / "grafana"
BOARDS = {
    "federation.json": federation.build,
    "node.json": node.build,
    "topics-and-callbacks.json": topics.build,
}
LEFT_OUT: Final = {
    "process_virtual_memory_bytes": "it says nothing about the memory that a node takes",
    "routemaster_delivery_time2_total": "for a standard deviation, which a board has no use for",
    "routemaster_jobs_scrubbed_total": "always 0",
    "routemaster_process_total": "1 since the start, which the board of nodes shows",
    "routemaster_store_low_mark": "the same as the high mark",
    "routemaster_store_max_mem": "the high mark and the part of it that is kept free",
    "routemaster_workers_scrubbed_total": "always 0",
    "topics_bytes_live": "the sum of those of single topics",
    "topics_queue_leases_in_flight": "the sum of those of single queues",
    "topics_queue_topics": "how many queues are declared",
    "topics_ready": "whether a node answers shows more",
    "topics_records_live": "the sum of those of single topics",
    "topics_recovery_progress": "always 1",
    "topics_topic_metrics_truncated": "for programs that read all topics",
    "topics_topics": "the sum of those by durability",
    "topics_uptime_ms": "process_start_time_seconds is on the board of nodes",
    "topics_wal_queue_depth_peak": "the depth itself is shown",
    "topics_wal_rotations_total": "the size of the write-ahead log shows more",
    "topics_wal_submit_full_total": "always 0",
}
"""Metrics that are on no board, with the reason."""


VALUES: Final = {"__rate_interval": "5m", "__range": "3h", "__interval": "15s"}
"""Values of the variables that Grafana itself has; those of a board stand in patterns of labels."""


def panels(board: Json) -> Iterator[Json]:
    """Yield all panels and rows, panels of collapsed rows included."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def graphs(board: Json) -> Iterator[Json]:
    """Yield all panels that are not rows."""
    return (panel for panel in panels(board) if panel["type"] != "row")


def variables(board: Json) -> dict[str, Json]:
    """Return the variables by name."""
    return {one["name"]: one for one in board["templating"]["list"]}


def filled(expression: str, board: Json) -> str:
    """Return a query with a value for each variable."""
    values = VALUES | dict.fromkeys(variables(board), ".+")
    return re.sub(r"\$(\w+)", lambda name: values[name[1]], expression)


def expressions(name: str) -> list[str]:
    """Return all queries of the panels in a board's file, with a value for each variable."""
    board = json.loads((FOLDER / name).read_text())
    return [filled(target["expr"], board) for panel in graphs(board) for target in panel["targets"]]


def rendered(name: str) -> str:
    """Return the text of a board's file."""
    return json.dumps(BOARDS[name](), indent=2, ensure_ascii=False) + "\n"
