"""Measures how long applying a changed resource holds the lock of the writer: `python -m tests.bench.declaring
[options]`.

The log has many routers, and groups with peers. Each change alters one peer's selector; measured are the whole
transaction that applies it, and the transaction in which a node updates its cursors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from eventd.egress.cursors import follow, read_declared, reconcile
from eventd.egress.routers.graph import NewRouterRules
from eventd.egress.routers.projection import Router
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.routers.declare import PutRouter, RouterLimits, RouterSpec
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import announce, put_resource, read_resources
from eventd.store.schema.migrations import upgrade
from tests.bench.rounds import databases, run_rounds
from tests.bench.wire import percentile

T = TypeVar("T")


def main() -> None:
    options = _options()
    with databases(options.database) as make_url:

        def one() -> dict[str, float]:
            with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
                url = make_url() or f"sqlite:///{Path(directory) / 'eventd.db'}"
                return asyncio.run(_measure(url, options))

        run_rounds(vars(options), options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.declaring")
    parser.add_argument("--routers", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--peers", type=int, default=5, help="of each group")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    return parser.parse_args()


async def _measure(url: str, options: argparse.Namespace) -> dict[str, float]:
    with closing(Database(url)) as database:
        database.write_now(upgrade, now=SystemClock().now())
        log = await EventLog.open(database, SystemClock())
        for start in range(0, options.routers, 500):
            await asyncio.gather(*(_route(log, number) for number in range(start, min(start + 500, options.routers))))
        database.write_now(_declare_all, options)
        applying, following = list[float](), list[float]()
        for number in range(options.changes):
            database.write_now(_timed, applying, _apply, number)
            version, declared, _ = await database.read(read_declared)
            found = database.write_now(_timed, following, follow, version, declared, [], log.clock.now())
            assert found is not None
            mine = [cursor for cursor in found[0] if cursor.kind == "peer"]
            assert len(mine) == options.groups * options.peers
        await log.close()
    return {
        "apply_p50_ms": percentile(applying, 50),
        "apply_longest_ms": percentile(applying, 100),
        "follow_p50_ms": percentile(following, 50),
        "follow_longest_ms": percentile(following, 100),
    }


def _timed(conn: Connection, times: list[float], work: Callable[..., T], *args: Any) -> T:
    begun = time.perf_counter()
    try:
        return work(conn, *args)
    finally:
        times.append(time.perf_counter() - begun)


async def _route(log: EventLog, number: int) -> None:
    router = Router(f"r{number:05d}", f"source{number % 100}", f"dest{number:05d}")
    wanted = RouterSpec(router.name, router.source, router.dest, router.options.encode())
    unit = PutRouter(wanted, NewRouterRules(router), RouterLimits(), create_dest=True, random=os.urandom(16))
    await log.submit(unit)


def _declare_all(conn: Connection, options: argparse.Namespace) -> None:
    for group in range(options.groups):
        _put(conn, "EventGroup", f"g{group}", {"nodeName": "a", "auth": {"secretFile": "/nowhere"}})
        for peer in range(options.peers):
            _put_peer(conn, group, peer, "t")
    announce(conn)
    reconcile(conn, read_resources(conn), 1)


def _put_peer(conn: Connection, group: int, peer: int, kind: str) -> None:
    spec = {"groupRef": f"g{group}", "nodeName": f"b{peer}", "endpoint": "http://127.0.0.1:9", "types": [kind]}
    _put(conn, "EventPeer", f"g{group}-b{peer}", spec)


def _put(conn: Connection, kind: str, name: str, spec: dict[str, object]) -> None:
    version = "federation.routerd.net/v1alpha1"
    put_resource(conn, api_version=version, kind=kind, name=name, annotations={}, spec=spec, now=1)


def _apply(conn: Connection, number: int) -> None:
    lock_head(conn)
    _put_peer(conn, 0, 0, f"t{number}")
    announce(conn)
    reconcile(conn, read_resources(conn), 1)


if __name__ == "__main__":
    main()
