"""Measures topics: `python -m tests.bench.topics WHAT …`; `--help` lists the measurements.

A node and its rival run as processes of their own; clients run in this process. Every run verifies that what was
counted arrived. A ratio compares with the rival, or with a bare insert, of the same round; the last output is medians.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.bench.rounds import run_rounds
from tests.bench.topics_deleting import measure_deleting
from tests.bench.topics_queues import measure_queues
from tests.bench.topics_reads import measure_reads
from tests.bench.topics_recovery import measure_kills, measure_recovery
from tests.bench.topics_routers import measure_routers
from tests.bench.topics_scale import measure_scale
from tests.bench.topics_sharing import measure_sharing
from tests.bench.topics_site import Figures
from tests.bench.topics_watch import measure_watch
from tests.bench.topics_writes import measure_writes
from tests.bench.wire import run_alone

MEASURES: dict[str, Callable[[Path, argparse.Namespace], Coroutine[Any, Any, Figures]]] = {
    "write": measure_writes,
    "read": measure_reads,
    "watch": measure_watch,
    "routers": measure_routers,
    "sharing": measure_sharing,
    "queues": measure_queues,
    "scale": measure_scale,
    "recovery": measure_recovery,
    "kills": measure_kills,
    "deleting": measure_deleting,
}
CLIENT = (
    "one process, raw connections on uvloop, requests made beforehand; *_client_busy is its share of a core: near 1, or"
    " where all cores together are taken, the client is the limit and the node could do more"
)


def main() -> None:
    options = _options()

    def one() -> Figures:
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
            return run_alone(MEASURES[options.what](Path(directory), options))

    run_rounds(vars(options) | {"client": CLIENT}, options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.topics", description=__doc__)
    parser.add_argument("what", choices=[*MEASURES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=100, help="bytes of the data of a record, about")
    parser.add_argument("--writes", type=int, default=4000, help="write: single writes of one client")
    parser.add_argument(
        "--batches", type=int, default=100, help="write: batches of each of 16 writers; sharing: batches in all"
    )
    parser.add_argument("--records", type=int, default=100_000, help="read: of the topic")
    parser.add_argument("--calls", type=int, default=4000, help="read: pages of all clients, at most")
    parser.add_argument("--watchers", type=int, nargs="+", default=[1, 100, 1000], help="watch: how many at once")
    parser.add_argument("--told", type=int, default=100, help="watch, sharing: single writes that all of them hear of")
    parser.add_argument("--beside", type=int, default=100, help="watch: watchers beside one that does not read")
    parser.add_argument("--turns", type=int, default=3, help="watch: how often with that one, and without it")
    parser.add_argument("--routers", type=int, nargs="+", default=[0, 1, 10, 100, 1000], help="routers: how many")
    parser.add_argument(
        "--copies", type=int, default=200_000, help="routers: about so many copies, 200 writes at least"
    )
    parser.add_argument("--durability", choices=["disk", "fsync"], default="disk", help="routers: of all topics")
    parser.add_argument("--guarantee", choices=["at_least_once", "exactly_once"], default="at_least_once")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 10, 100], help="sharing: how many")
    parser.add_argument("--jobs", type=int, default=20_000, help="queues: how many")
    parser.add_argument("--workers", type=int, default=100, help="queues: how many at once")
    parser.add_argument("--claims", type=int, nargs="+", default=[1, 10, 100], help="queues: jobs in one claim")
    parser.add_argument("--topics", type=int, nargs="+", default=[100, 100_000], help="scale: how many")
    parser.add_argument("--held", type=int, default=1_000_000, help="recovery: records of the node that is killed")
    parser.add_argument("--kills", type=int, default=20, help="kills: how often the node is killed")
    parser.add_argument("--writers", type=int, default=4, help="kills: clients that write meanwhile")
    parser.add_argument("--deleted", type=int, default=300, help="deleting: how many topics")
    parser.add_argument("--held-each", type=int, default=300, help="deleting: records of each of them")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite", help="deleting")
    parser.add_argument("--seed", type=int, default=1, help="kills: of the lots that are drawn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
