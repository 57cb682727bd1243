"""Measures the cost of each operation on a log of a given size: CPU of the node and time, for an event or for a call.

Retention removes what a run writes, so a log keeps its size from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eventd.bench.ledger import Ledger
from eventd.bench.nodes import pause, peer_of
from eventd.bench.pouring import held
from eventd.bench.wire import now
from tests.bench.growth_logs import GROUP, A, B, Shape
from tests.bench.growth_sites import Cost, FilledNode, Meter, ask_all, declare_down, group_with, node_site, start_all

WRITTEN = 20_480
"""Events that are ingested, pushed, received and pruned."""
REQUEST = 256
"""Events of a request."""
LINES = 4
"""Connections for writing."""
PAGE = 1000
CALLS = 40
LOOK_UPS = 400
BASE = f"/api/v1/groups/{GROUP}"
LOOK_SECONDS = 0.05
LONGEST_SECONDS = 300.0

Costs = dict[str, Cost]


class NotVerified(Exception):
    """The count differs from what is stored: the figures are not valid."""


async def measure(urls: tuple[str, str], home: Path, shape: Shape) -> tuple[Costs, dict[str, float]]:
    """Measure all costs of one log, and the peak memory of its nodes in MiB. Raises `NotVerified`."""
    with node_site(home, urls, (A, B)) as (a, b):
        assert b.listen is not None
        declare_down(urls[1], group_with(b, GROUP, listens=True))
        declare_down(urls[0], group_with(a, GROUP), peer_of(GROUP, B, *b.listen))
        await start_all([a, b])
        await b.listening(GROUP)
        run = _Run(a, b, shape)
        await run.begin()
        found = await run.write() | await run.read() | await run.ask() | await run.prune()
        return found, {"a_peak_mib": a.peak_mib(), "b_peak_mib": b.peak_mib()}


class _Run:
    """The measurement of one log. `first` is the number of the first event that it writes, and its position."""

    def __init__(self, a: FilledNode, b: FilledNode, shape: Shape) -> None:
        self._a, self._b, self._shape = a, b, shape
        self._first = self._oldest = self._stored = 0
        self._epoch = ""

    async def begin(self) -> None:
        """Read what the log holds, and wait until the link is idle."""
        told = await self._a.client.call("GET", "/api/v1/status")
        [group] = told["groups"]
        self._first, self._epoch = told["position"], told["epoch"]
        self._oldest, self._stored = group["evictedSeq"], group["events"]
        await self._until_in_step()

    async def _until_in_step(self) -> None:
        deadline = now() + LONGEST_SECONDS
        while True:
            [link] = (await self._a.client.call("GET", f"{BASE}/links"))["outbound"]
            if not link["lagEvents"] and link["lastSuccessAt"]:
                return
            if now() > deadline:
                raise NotVerified(f"the link does not get into step: {link}")
            await pause(LOOK_SECONDS)

    # --- writing ------------------------------------------------------------------------------------------------

    async def write(self) -> Costs:
        """Measure the ingest while the link is paused, then the delivery."""
        a, b = self._a, self._b
        await a.client.call("POST", f"{BASE}/peers/{B}/pause", {"by": "growth"})
        ledger, rows = Ledger(), [[] for _ in range(LINES)]  # type: tuple[Ledger, list[list[bytes]]]
        for at in range(WRITTEN // REQUEST):
            taken = ledger.take(at % LINES, REQUEST)
            numbers = range(self._first + taken.start, self._first + taken.stop)
            body = self._shape.request(numbers, with_ids=self._shape.ids == "random")
            rows[at % LINES].append(a.client.request("POST", f"{BASE}/events", body))
        meter = Meter(a)
        await a.client.load(rows)
        ingest = meter.cost(WRITTEN)
        before, sender, receiver = await held(b.client, GROUP), Meter(a), Meter(b)
        await a.client.call("POST", f"{BASE}/peers/{B}/resume", {})
        deadline = now() + LONGEST_SECONDS
        while await held(b.client, GROUP) < before + WRITTEN and now() < deadline:
            await pause(LOOK_SECONDS)
        push, receive = sender.cost(WRITTEN), receiver.cost(WRITTEN)
        await self._until_in_step()
        sent, came = await self._written(a), await self._written(b)
        problems = ledger.problems(sent) or (["B holds something else"] if came != sent else [])
        if problems:
            raise NotVerified("; ".join(problems))
        return {"ingest": ingest, "push": push, "receive": receive}

    async def _written(self, node: FilledNode) -> list[int]:
        """Return the numbers of the newest events of a node, in the order of its log."""
        at = (await node.client.call("GET", "/api/v1/status"))["position"] - WRITTEN
        epoch = (await node.client.call("GET", "/api/v1/status"))["epoch"]
        found: list[int] = []
        while len(found) < WRITTEN:
            page = await node.client.call("GET", f"{BASE}/events?limit={PAGE}&after={epoch}:{at + len(found)}")
            found += [int(event["payload"]["number"]) - self._first for event in page["events"]]
            if not page["next"]:
                break
        return found

    # --- reading ------------------------------------------------------------------------------------------------

    async def read(self) -> Costs:
        """Measure pages at the beginning, in the middle and at the end of the log, filtered pages, and single
        events."""
        last = self._first + WRITTEN
        ends = {"start": self._oldest, "middle": (self._oldest + last) // 2, "end": last - PAGE}
        found: Costs = {}
        for name, place in ends.items():
            paths = [f"events?limit={PAGE}&after={self._epoch}:{place}"] * CALLS
            found[f"page_{name}"] = (await self._pages(paths, PAGE)).of(CALLS * PAGE)
        start = f"{self._epoch}:{self._oldest}"
        found["page_type"] = await self._pages([f"events?limit=100&type=bench.tenth&after={start}"] * CALLS, 100)
        found["page_subject"] = await self._pages([f"events?limit=100&subjectPrefix=10.&after={start}"] * CALLS, 100)
        found["list"] = await self._pages(["events?limit=100&newest=true"] * CALLS, 100)
        found["rare_type"] = (await self._pages(["events?limit=1000&type=bench.never"], 0)).of(self._stored)
        found["rare_subject"] = (await self._pages(["events?limit=1000&subjectPrefix=nowhere"], 0)).of(self._stored)
        choice = random.Random(1)
        places = [choice.randrange(self._oldest, self._first) for _ in range(LOOK_UPS)]
        asked = [f"events?limit=1&after={self._epoch}:{place}" for place in places]
        ids = [page["events"][0]["id"] for page in (await self._ask(asked))[0]]
        found["look_up"] = await self._pages([f"events?id={one}" for one in ids], 1)
        return found

    async def _pages(self, paths: Sequence[str], expected: int) -> Cost:
        told, cost = await self._ask(paths)
        sizes = {len(page["events"]) for page in told}
        if sizes != {expected}:
            raise NotVerified(f"{paths[0]} gave {sizes} events and not {expected}")
        return cost

    async def _ask(self, paths: Sequence[str]) -> tuple[list[Any], Cost]:
        asked = [self._a.client.request("GET", path if path[0] == "/" else f"{BASE}/{path}") for path in paths]
        return await ask_all(self._a, asked)

    # --- asking about ---------------------------------------------------------------------------------------------

    async def ask(self) -> Costs:
        """Measure what operators read: deliveries, their summary, doctor, links, the status."""
        found: Costs = {}
        end = f"{self._epoch}:{self._first + WRITTEN - 100}"
        for name, path in (("start", "deliveries?limit=100"), ("end", f"deliveries?limit=100&after={end}")):
            told, found[f"deliveries_{name}"] = await self._ask([path] * CALLS)
            if {len(one["deliveries"]) for one in told} != {100}:
                raise NotVerified(f"{path} did not give 100 deliveries")
        [told], whole = await self._ask(["deliveries/summary"])
        stored = self._stored + WRITTEN
        [row] = told["summary"]
        if (row["events"], row["delivered"]) != (stored, stored):
            raise NotVerified(f"of {stored} events the summary says: {row}")
        found["summary"] = whole.of(stored)
        told, found["doctor"] = await self._ask(["/api/v1/doctor"] * CALLS)
        if any(check["status"] == "fail" for one in told for check in one["checks"]):
            raise NotVerified(f"doctor is not content: {told[0]}")
        _, found["links"] = await self._ask(["links"] * CALLS)
        _, found["status"] = await self._ask(["/api/v1/status"] * CALLS)
        return found

    # --- removing -------------------------------------------------------------------------------------------------

    async def prune(self) -> Costs:
        """Measure how retention removes as many of the oldest events as were written: at both nodes, A is measured."""
        cost = Cost(0, 0, 0)
        for node in (self._b, self._a):
            meter = Meter(node)
            await node.declare(group_with(node, GROUP, listens=node is self._b, retention={"maxEvents": self._stored}))
            await node.client.call("POST", f"{BASE}/prune", {})
            cost = meter.cost(WRITTEN)
            if (left := await held(node.client, GROUP)) != self._stored:
                raise NotVerified(f"retention left {left} events and not {self._stored}")
            await node.declare(group_with(node, GROUP, listens=node is self._b))
        return {"prune": cost}
