"""Measures the merge of many parts: `python -m tests.bench.merge [--parts N] [--declared N]`. Milliseconds, median of
five.

`merge` is the function alone, over validated parts. The others include the database, as in a node: `first` after its
start, `one part` after one was written, `expiry` when one expires, `nothing` when nothing has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from eventd.dynamic.effective import Following
from eventd.dynamic.merge import merge
from eventd.dynamic.part import form_part
from eventd.dynamic.prepared import prepare, prepare_startup
from eventd.log.core.head import lock_head
from eventd.plugins.contract.contract import Result
from eventd.store.engine.database import Connection, Database
from eventd.store.parts.parts import put_part
from eventd.store.parts.reading import read_parts
from eventd.store.rows.registry import announce, put_resource, read_resources
from eventd.store.schema.migrations import upgrade
from eventd.testing import NOW, ManualClock, event

ROUNDS = 5
MINUTE = 60_000_000
CLAIM = ("hybrid.routerd.net/v1alpha1", "RemoteAddressClaim")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=10_000)
    parser.add_argument("--declared", type=int, default=1_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory,
        closing(Database(f"sqlite:///{Path(directory) / 'eventd.db'}")) as database,
    ):
        database.write_now(upgrade, now=NOW)
        database.write_now(fill, options.declared, options.parts)
        figures = asyncio.run(measure(database, options.parts, options.declared))
    print(json.dumps(figures, indent=2))


def fill(conn: Connection, declared: int, parts: int) -> None:
    for number in range(declared):
        spec = {"destination": f"10.0.{number // 256}.{number % 256}/32", "gateway": "10.99.0.6"}
        put_resource(
            conn,
            api_version="net.routerd.net/v1alpha1",
            kind="IPv4Route",
            name=f"r{number}",
            annotations={},
            spec=spec,
            now=NOW,
        )
    announce(conn)
    for number in range(parts):
        give(conn, number)


def give(conn: Connection, number: int, *, event_id: str = "", ttl: int = 30 * MINUTE) -> None:
    """Write one claim, as the example plugin does."""
    lock_head(conn)
    address = f"10.{88 + number // 65536}.{number // 256 % 256}.{number % 256}"
    resource = {
        "apiVersion": CLAIM[0],
        "kind": CLAIM[1],
        "metadata": {"name": f"onprem-{address.replace('.', '-')}"},
        "spec": {
            "domainRef": "edge",
            "address": f"{address}/32",
            "ownerSide": "onprem",
            "capture": {
                "type": "provider-secondary-ip",
                "providerRef": "example-provider",
                "nicRef": event_id or "nic",
            },
            "delivery": {"peerRef": "onprem-main", "mode": "route", "tunnelInterface": "wg-hybrid"},
        },
    }
    result = Result(observed_at=NOW, ttl=ttl, resources=[resource])
    events = [event(event_id or f"e{number}", group="edge", subject=f"{address}/32")]
    owner = "EventSubscription/claims"
    put_part(
        conn,
        form_part(owner=owner, events=events, result=result, plugin="p", clamp=False, grace=MINUTE, now=NOW),
        NOW,
    )


async def measure(database: Database, parts: int, declared: int) -> dict[str, Any]:
    clock = ManualClock()
    stored = database.read_now(read_parts)
    prepared, startup = [prepare(part) for part in stored], prepare_startup(database.read_now(read_resources))
    following = Following(database, clock)

    async def first() -> None:
        await Following(database, clock).current()

    async def expire() -> None:
        clock.advance(1)
        await following.current()

    def given(number: int) -> None:
        database.write_now(give, number, event_id=f"again{number}")

    def short(number: int) -> None:
        ends = clock.now() - NOW + 1_000_000
        database.write_now(give, 100 + number, event_id=f"short{number}", ttl=ends)

    await following.current()
    figures: dict[str, Any] = {"parts": parts, "declared": declared}
    figures["merge"] = await timed(lambda: _now(lambda: merge(startup, prepared, (), NOW)))
    figures["merge and etag"] = await timed(lambda: _now(lambda: merge(startup, prepared, (), NOW).etag()))
    figures["first"] = await timed(first)
    figures["one part"] = await timed(following.current, before=given)
    figures["nothing"] = await timed(following.current)

    async def become_short(number: int) -> None:
        short(number)
        await following.current()

    waits = []
    for number in range(ROUNDS):
        await become_short(number)
        waits.append(await timed(expire, rounds=1))
    figures["expiry"] = statistics.median(waits)
    snapshot = await following.current()
    assert len(snapshot.effective.entries) == parts + declared - ROUNDS, "a part is missing"
    return figures


async def _now(work: Callable[[], object]) -> None:
    work()


async def timed(
    work: Callable[[], Awaitable[Any]], *, before: Callable[[int], None] | None = None, rounds: int = ROUNDS
) -> float:
    taken = []
    for number in range(rounds):
        if before is not None:
            before(number)
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1000)
    return round(statistics.median(taken), 2)


if __name__ == "__main__":
    main()
