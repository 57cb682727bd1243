"""Measures single writes while topics are deleted, and until the node has removed their rows.

A client writes a record at a steady pace to a topic that stays: first next to an idle node, then while another client
deletes all other topics, then until the node has removed their rows. Trimming is measured too: expired idempotency keys
are stored beforehand, and must be gone at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import closing
from pathlib import Path

from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.schema.migrations import upgrade
from tests.bench.rounds import databases
from tests.bench.steady import steady_client
from tests.bench.topics_site import Figures, Site, site, write_of
from tests.bench.wire import load, percentile, request

STAYS = "stays"
PRUNE_INTERVAL = "1s"
LONGEST_SECONDS = 100.0
EVERY_SECONDS = 0.02
IDLE_SECONDS = 5.0
LOOK_SECONDS = 0.5
KEYS = 1000
_LEFT = "SELECT count(*) FROM topics WHERE name < '0'"
_KEYS = "SELECT count(*) FROM write_keys"


async def measure_deleting(directory: Path, options: argparse.Namespace) -> Figures:
    with databases(options.database) as make_url:
        url = make_url()
        if url is not None:
            with closing(Database(url)) as database:
                database.write_now(upgrade, now=SystemClock().now())
        with (
            site(directory, url, EVENTD_PRUNE_INTERVAL=PRUNE_INTERVAL) as at,
            closing(Database(url or f"sqlite:///{at.database}")) as watching,
        ):
            return await _measure(at, watching, options)


async def _measure(at: Site, watching: Database, options: argparse.Namespace) -> Figures:
    names = [f"gone.{number}" for number in range(options.deleted)]
    await load(at.port, [[request("PUT", f"/v0/topics/{STAYS}", {"idempotency_window_ms": 1000})]])
    filled = [write_of(name, range(options.held_each), options.size) for name in names]
    await load(at.port, [filled[n::8] for n in range(8)])
    async with steady_client(at.port, lambda n: write_of(STAYS, [n], options.size), every=EVERY_SECONDS) as writes:
        writes.phase = "idle"
        await asyncio.sleep(IDLE_SECONDS)
        writes.phase = "keys"
        keyed = [request("POST", f"/v0/topics/{STAYS}", _body(n, f"key-{n}")) for n in range(KEYS)]
        assert all(one["count"] == 1 for one in (await load(at.port, [keyed])).jsons()[0])
        writes.phase, begun = "deleting", time.perf_counter()
        gone = await load(at.port, [[request("DELETE", f"/v0/topics/{name}") for name in names]])
        assert all(one["deleted"] for one in gone.jsons()[0])
        writes.phase, left, keys, trimmed = "removing", len(names), KEYS, 0.0
        while (left or keys) and time.perf_counter() - begun < LONGEST_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            [(left,)], [(keys,)] = await watching.read(fetch, _LEFT), await watching.read(fetch, _KEYS)
            trimmed = trimmed or (0.0 if keys else time.perf_counter() - begun)
        seconds = time.perf_counter() - begun
    figures = {
        f"{phase}_write_p{at}_ms": percentile(writes.latencies[phase], at)
        for phase in ("idle", "deleting", "removing")
        for at in (50, 99)
    }
    both = writes.latencies["deleting"] + writes.latencies["removing"]
    return {
        **figures,
        "p50_to_idle": round(percentile(both, 50) / figures["idle_write_p50_ms"], 2),
        "removed_seconds": round(seconds, 1),
        "trimmed_seconds": round(trimmed, 1),
        "topics_left": left,
        "old_keys_left": keys,
    }


def _body(number: int, key: str) -> dict[str, object]:
    return {"records": [{"data": {"n": number}}], "idempotency_key": key}
