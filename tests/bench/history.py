"""Measures what a verifiable history costs, and how fast it proves: `python -m tests.bench.history [options]`.

Each round writes events to two nodes in turns, one whose group keeps no history and one whose group does; the order
alternates. For the second, it also measures how long after the last event everything is sealed, and proofs: in the
node's code, as a command, and their check. The number of leaves at the end verifies that each event was sealed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from aiohttp import ClientSession

from eventd.bench.machine import cpu_of
from eventd.groups.lookup import read_group_topic
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Publish
from eventd.log.history.proving import find_leaf, prove_event
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Connection, Database
from federation.history.notes import LOG_KEY, NoteKey, read_vkey
from federation.history.proof_file import check_proof
from tests.bench.growth_logs import GROUP, Shape
from tests.bench.rounds import run_rounds
from tests.support.declared import group
from tests.support.fresh import make_current
from tests.support.histories import OWNER, start
from tests.support.processes import Processes
from tests.support.running import NodeProcess

MODES = ("off", "record")
BATCH = 256
CONNECTIONS = 4
PROOFS = 300
STEADY = 200
"""Events a second of a steady load, one a request."""
STEADY_SECONDS = 15
FILLED = 20_000
"""Events of one transaction of a log that is filled directly."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.history")
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filled", action="store_true", help="measure proofs alone, in a log that is filled directly")
    parser.add_argument("--steady", action="store_true", help="measure the time to a checkpoint alone")
    options = parser.parse_args()
    if options.steady:
        run_rounds(vars(options), options.rounds, _steady)
        return
    if options.filled:
        run_rounds(vars(options), options.rounds, lambda: _fill_and_prove(options.events))
        return
    orders = itertools.cycle([MODES, MODES[::-1]])
    run_rounds(vars(options), options.rounds, lambda: _round(options.events, next(orders)))


def _round(events: int, order: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        for mode in order:
            found |= _measure(events, Path(folder) / mode, mode)
    ratio = found["record_events_per_second"] / found["off_events_per_second"]
    bytes_more = found["record_bytes_per_event"] - found["off_bytes_per_event"]
    return {**found, "record_to_off": ratio, "history_bytes_per_event": bytes_more}


def _measure(events: int, folder: Path, mode: str) -> dict[str, float]:
    processes = Processes(folder)
    try:
        node = NodeProcess(processes, "a")
        node.apply(group("a", name=GROUP, history={"mode": mode}))
        if mode == "record":
            _await_tree(node)
        begun, before = time.monotonic(), cpu_of(node.process.pid) or 0.0
        asyncio.run(_write(node, events))
        seconds = time.monotonic() - begun
        cpu = (cpu_of(node.process.pid) or 0.0) - before
        found = {"events_per_second": events / seconds, "cpu_us_per_event": cpu / events * 1e6}
        if mode == "record":
            found |= _await_seal(node, events) | _command(processes, node)
        node.stop()
        found["bytes_per_event"] = node.file.stat().st_size / events
        if mode == "record":
            found |= asyncio.run(_prove(node.file, events))
        return {f"{mode}_{name}": value for name, value in found.items()}
    finally:
        processes.close()


def _steady() -> dict[str, float]:
    """Return the seconds from the answer to an event until its leaf is in a signed checkpoint, at a steady rate."""
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        processes = Processes(Path(folder))
        try:
            node = NodeProcess(processes, "a")
            node.apply(group("a", name=GROUP))
            _await_tree(node)
            waits = sorted(asyncio.run(_wait_for_seals(node)))
            node.stop()
        finally:
            processes.close()
    named = {"p50": waits[len(waits) // 2], "p99": waits[int(len(waits) * 0.99)], "longest": waits[-1]}
    return {f"{name}_seconds": seconds for name, seconds in named.items()} | {"events": len(waits)}


async def _wait_for_seals(node: NodeProcess) -> list[float]:
    """Emit for a while, and return how long each event waited for a checkpoint."""
    api = f"http://127.0.0.1:{node.process.port}/api/v1"
    answered: list[tuple[float, int]] = []
    sizes: list[tuple[float, int]] = []

    async def watch(session: ClientSession) -> None:
        while True:
            async with session.get(f"{api}/history") as answer:
                size = (await answer.json())["groups"][0]["trees"][0]["size"]
            sizes.append((time.monotonic(), size))
            await asyncio.sleep(0.02)

    async def emit(session: ClientSession) -> None:
        async with session.post(f"{api}/groups/{GROUP}/events", json={"events": [{"type": "t"}]}) as answer:
            [result] = (await answer.json())["results"]
        answered.append((time.monotonic(), result["leaf"]))

    async with ClientSession() as session:
        watching, begun = asyncio.create_task(watch(session)), time.monotonic()
        emitting = []
        for number in range(STEADY * STEADY_SECONDS):
            await asyncio.sleep(max(0.0, begun + number / STEADY - time.monotonic()))
            emitting.append(asyncio.create_task(emit(session)))
        await asyncio.gather(*emitting)
        while sizes[-1][1] <= max(leaf for _, leaf in answered):  # noqa: ASYNC110 another process: it can only be polled
            await asyncio.sleep(0.05)
        watching.cancel()
    return [next(at for at, size in sizes if size > leaf) - since for since, leaf in answered]


async def _write(node: NodeProcess, events: int) -> None:
    """Write the events over several connections."""
    shape, starts = Shape(), iter(range(0, events, BATCH))
    url = f"http://127.0.0.1:{node.process.port}/api/v1/groups/{GROUP}/events"
    headers = {"Content-Type": "application/json"}

    async def pour(session: ClientSession) -> None:
        for first in starts:
            body = shape.request(range(first, min(events, first + BATCH)), with_ids=True)
            async with session.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

    async with ClientSession() as session:
        await asyncio.gather(*(pour(session) for _ in range(CONNECTIONS)))


def _await_tree(node: NodeProcess) -> None:
    """Wait until a tree is open: events from before it have no leaf."""
    while not node.ask("GET", "/history")["groups"][0]["trees"]:
        time.sleep(0.05)


def _await_seal(node: NodeProcess, events: int) -> dict[str, float]:
    """Return the seconds from the last event until all of them are in a checkpoint."""
    begun = time.monotonic()
    while True:
        [shown] = node.ask("GET", "/history")["groups"][0]["trees"]
        if shown["size"] == events + 1:
            return {"sealed_after_seconds": time.monotonic() - begun}
        assert time.monotonic() - begun < 300, shown
        time.sleep(0.5)


def _command(processes: Processes, node: NodeProcess) -> dict[str, float]:
    """Return the seconds of `prove`, which asks the running node, and of `prove check`."""
    shape, file = Shape(), str(node.data / "proof.json")
    key = node.ask("GET", f"/groups/{GROUP}/history/keys")["trees"][0]["key"]
    spent: dict[str, list[float]] = {"prove_seconds": [], "check_seconds": []}
    for number in range(0, 50, 10):
        data = ("--data-dir", str(node.data))
        commands = {
            "prove_seconds": ("prove", shape.id_of(number), "--out", file, *data),
            "check_seconds": ("prove", "check", file, "--key", key),
        }
        for name, arguments in commands.items():
            begun = time.monotonic()
            told = processes.control(*arguments)
            spent[name].append(time.monotonic() - begun)
            assert told.returncode == 0, told.stderr
    return {name: statistics.median(times) for name, times in spent.items()}


def _fill_and_prove(events: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        file = Path(folder) / "log.db"
        make_current(f"sqlite:///{file}", now=SystemClock().now())
        asyncio.run(_fill(file, events))
        return asyncio.run(_prove(file, events))


async def _fill(file: Path, events: int) -> None:
    """Fill a log with events that are all sealed."""
    owner, shape, clock = OWNER._replace(group=GROUP, node="a"), Shape(), SystemClock()
    with closing(Database(f"sqlite:///{file}")) as database:
        log = await EventLog.open(database, clock)
        topic, _ = await start(log, owner, f"group:{GROUP}")
        for first in range(0, events, FILLED):
            await log.submit(Publish(topic, shape.drafts(range(first, min(events, first + FILLED)))))
            while (hashed := await database.read(hash_new, topic, 4 * FILLED)) is not None:
                assert await database.write(store_checkpoint, hashed, owner, clock.now())
        await log.close()


async def _prove(file: Path, events: int) -> dict[str, float]:
    """Return the milliseconds of proofs of random events in the node's code, and the microseconds of their checks."""
    made, checked = list[float](), list[float]()
    with closing(Database(f"sqlite:///{file}")) as database:
        chosen = random.Random(1).sample(range(1, events + 1), min(PROOFS, events))
        for position in chosen:
            begun = time.perf_counter()
            data, key = await database.read(_prove_at, position)
            made.append((time.perf_counter() - begun) * 1e3)
            begun = time.perf_counter()
            assert check_proof(data, [key]).index == position
            checked.append((time.perf_counter() - begun) * 1e6)
    return {
        "proof_p50_ms": statistics.median(made),
        "proof_slowest_ms": max(made),
        "check_p50_us": statistics.median(checked),
    }


def _prove_at(conn: Connection, position: int) -> tuple[bytes, NoteKey]:
    leaf = find_leaf(conn, read_group_topic(conn, GROUP).id, position)
    return prove_event(conn, leaf).encode(), read_vkey(leaf.tree.log_key, LOG_KEY)


if __name__ == "__main__":
    main()
