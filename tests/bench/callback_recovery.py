"""How soon a subscriber that was dead gets everything again, beside the law of the reference in the same situation.

The reference, written down from its behaviour: a subscriber has 0 to 100 points, at first 100; a success adds one, a
failure takes two. Its back-off is 60 s divided by 2 to the power of its points. Each batch has a job of its own, which
is tried when it is due, unless the last try at the subscriber is less than the back-off ago: then the job waits for 1
to 1.5 back-offs. Due jobs are looked for every 100 ms.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import statistics
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from eventd.bench.wire import now
from tests.bench.callback_site import CallbackSite
from tests.bench.topics_site import Figures

MOST_POINTS: Final = 100
LONGEST_MS: Final = 60_000
LOOK_MS: Final = 100
BATCHES = 50
PER_BATCH: Final = 10


class Recovery(NamedTuple):
    """Seconds from the end of an outage: until the first success, and until everything that waited is delivered."""

    first: float
    all_of_it: float
    tries: int


def simulate_reference(outage: float, batches: int, chance: random.Random) -> Recovery:
    """Return how a subscriber recovers that has `batches` waiting and is dead for so many seconds."""
    points, last, tries, over = MOST_POINTS, -LONGEST_MS, 0, int(outage * 1000)
    done: list[int] = []
    jobs = [(0, number) for number in range(batches)]
    while jobs:  # the times are in milliseconds
        at, number = heapq.heappop(jobs)
        pause = round(LONGEST_MS * 2.0**-points)
        if points < MOST_POINTS and at - last < pause:
            heapq.heappush(jobs, (_next_look(at + int(pause * chance.uniform(1, 1.5))), number))
            continue
        last = at
        if at < over:
            tries += 1
            points = max(0, points - 2)
            heapq.heappush(jobs, (_next_look(at + pause), number))
        else:
            points = min(MOST_POINTS, points + 1)
            done.append(at)
    return Recovery((done[0] - over) / 1000, (done[-1] - over) / 1000, tries)


def _next_look(at: int) -> int:
    return (at // LOOK_MS + 1) * LOOK_MS


class OutageGroup(NamedTuple):
    """Subscribers at one port, which is closed for so many seconds. `again`: they subscribe again after that."""

    seconds: float
    ids: list[int]
    again: bool

    @property
    def name(self) -> str:
        return f"outage_{self.seconds:g}s{'_subscribed_again' if self.again else ''}"


class RecoveryMeasurement:
    """Outages of these lengths at the same time, each of `count` subscribers, and once more with `again`.

    Port 0 of the site is not used.
    """

    def __init__(self, site: CallbackSite, outages: Sequence[float], count: int) -> None:
        self._site = site
        self._groups = [
            OutageGroup(seconds, site.add(count, at=at, timeout=0, max=PER_BATCH), again)
            for at, (seconds, again) in enumerate(product(outages, (False, True)), 1)
        ]

    @staticmethod
    def ports(outages: Sequence[float]) -> int:
        """Return how many ports the site needs."""
        return 1 + 2 * len(outages)

    async def measure(self) -> Figures:
        """Close all ports, publish, open each when its time is over, and return the seconds until all is there."""
        site, everybody = self._site, [id for group in self._groups for id in group.ids]
        await site.publish(PER_BATCH)
        await site.all_there(everybody)
        site.tell("mark", ids=everybody, keep=False)
        ports = range(1, len(self._groups) + 1)
        for at in ports:
            site.tell("listen", at=at, open=False)
        begun = now()
        await site.publish(BATCHES * PER_BATCH)
        back = await asyncio.gather(*(self._open(at, begun) for at in ports))
        await site.all_there(everybody)
        figures: Figures = {}
        for group, opened in zip(self._groups, back, strict=True):
            states = await site.all_there(group.ids)
            found = [Recovery(one["first_at"] - opened, one["last_at"] - opened, 0) for one in states]
            figures |= _figures(group.name, found)
        return figures

    async def _open(self, at: int, begun: float) -> float:
        group = self._groups[at - 1]
        await asyncio.sleep(begun + group.seconds - now())
        opened = now()
        self._site.tell("listen", at=at, open=True)
        if group.again:
            self._site.subscribe(group.ids, self._site.ports[at])
        return opened


def reference_figures(outages: Sequence[float], count: int) -> Figures:
    """Return the same figures of the reference's law, for `count` simulated subscribers."""
    chance, figures = random.Random(1), Figures()
    for outage in outages:
        found = [simulate_reference(outage, BATCHES, chance) for _ in range(count)]
        figures |= _figures(f"reference_outage_{outage:g}s", found)
    return figures


def _figures(name: str, found: Sequence[Recovery]) -> Figures:
    """Return the seconds from the end of the outage to the first success, and from there to all that waited."""
    first, after = [one.first for one in found], [one.all_of_it - one.first for one in found]
    return {
        f"{name}_first_p50_s": statistics.median(first),
        f"{name}_first_max_s": max(first),
        f"{name}_then_all_p50_s": statistics.median(after),
        f"{name}_then_all_max_s": max(after),
    }
