"""Links share the node's memory for outbound batches, and peers that never answer cannot use it up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from eventd.egress.peers.budget import Budget, BudgetShare
from eventd.egress.peers.outbound_batch import OutboundLines
from eventd.log.core.wire_page import WirePage
from eventd.testing import until
from federation.peers import EVENTS_PATH
from federation.signing import Head
from tests.bench.growth_sink import Connection, Reply, Sink
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.ports import free_port
from tests.support.sites import Site

MIB = 1 << 20
LONGEST = {"timeout": "1h"}
PADDING = "x" * 10_000
EVENTS = 200
"""2 MB together."""


class Crowd(Sink):
    """Peers of which each answers so many batches, and from then on none; it tells at once where it stands."""

    def __init__(self, secret: str, answers: int) -> None:
        super().__init__(secret)
        self._answers = answers
        self.heard: dict[str, list[int]] = {}  # the sizes of batches, by peer

    def ask(self, head: Head, body: bytes, reply: Reply) -> None:
        if head.path == EVENTS_PATH:
            heard = self.heard.setdefault(str(head.headers["eventd-to"]), [])
            heard.append(len(body))
            if len(heard) > self._answers:
                return
        super().ask(head, body, reply)


@asynccontextmanager
async def crowd(site: Site, answers: int = 0) -> AsyncIterator[tuple[Crowd, int]]:
    """Peers that listen, and their port."""
    peers, port = Crowd(site.secret.read_text().strip(), answers), free_port()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(peers), "127.0.0.1", port)
    try:
        yield peers, port
    finally:
        server.close()


@pytest.fixture
def most_held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The most that any node has ever held."""
    most = 0
    give_back = Budget.give_back

    def noting(budget: Budget, half: BudgetShare, size: int) -> None:
        nonlocal most
        most = max(most, budget.held)  # it only grows from one of these to the next
        give_back(budget, half, size)

    monkeypatch.setattr(Budget, "give_back", noting)
    return lambda: most


@contextmanager
def uncollected() -> Iterator[None]:
    """What is let go of only by the collector of garbage stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def carried() -> list[int]:
    """The sizes of all pages and batches that are in memory."""
    return [len(one.body) for one in gc.get_objects() if isinstance(one, WirePage | OutboundLines) and one.body]


def figure(site: Site, name: str) -> float | None:
    """A metric of a node."""
    return site.running.metrics.registry.get_sample_value(f"routerd_eventd_{name}")


async def fill(site: Site, count: int = EVENTS) -> list[str]:
    """Events of 10 kB each; their ids."""
    ids = [f"e{number}" for number in range(count)]
    for begin in range(0, count, 50):
        await site.emit(*ids[begin : begin + 50], payload={"text": PADDING})
    return ids


async def test_peers_that_answer_no_batch_leave_the_others_what_they_need(
    sites: MakeSites, most_held: Callable[[], int]
) -> None:
    a, b, c = sites("a", "b", "c")
    await a.start(max_outbox_bytes="8MiB")
    for site in (b, c):
        await site.start()
        await site.join()
    await a.join(b, c)
    for living in ("b", "c"):
        await a.ask("links.pause", group="edge", peer=living)
    ids = await fill(a)
    async with crowd(a) as (silent, port):
        await a.apply(*[peer(f"s{number}", port, limits=LONGEST) for number in range(16)])
        await until(lambda: len(silent.heard) == 16, "each of them to hear a batch")
        assert a.running.outbox.first.held == sum(size for sizes in silent.heard.values() for size in sizes)
        for living in ("b", "c"):
            await a.ask("links.resume", group="edge", peer=living)
        await b.holds(*ids)
        await c.holds(*ids)
        assert all(len(sizes) == 1 for sizes in silent.heard.values()), "they still wait for the first answer"
        assert most_held() <= 8 * MIB
        assert figure(a, "outbox_held_bytes") == a.running.outbox.held > 0
        assert figure(a, "outbox_waiting_links") == 0
        await a.stop()


async def test_peers_that_fall_silent_together_hold_the_others_up_for_a_moment(
    sites: MakeSites, most_held: Callable[[], int]
) -> None:
    a, b = sites("a", "b")
    await a.start(max_outbox_bytes="8MiB")
    await b.start()
    await b.join()
    await a.join(b)
    await a.ask("links.pause", group="edge", peer="b")
    ids = await fill(a)
    async with crowd(a, answers=1) as (silent, port):
        await a.apply(*[peer(f"s{number}", port, limits=LONGEST) for number in range(12)])
        outbox = a.running.outbox
        await until(lambda: outbox.main.queue, "some to wait for peers that will not answer")
        await a.ask("links.resume", group="edge", peer="b")
        await b.holds(*ids)
        assert most_held() <= 8 * MIB
        unanswered = "more than two peers to leave a batch without an answer"
        await until(lambda: sum(len(sizes) >= 2 for sizes in silent.heard.values()) > 2, unanswered)
        await a.stop()


async def test_events_that_are_larger_than_a_part_wait_for_room_and_all_arrive(
    sites: MakeSites, most_held: Callable[[], int]
) -> None:
    names = [f"p{number}" for number in range(6)]
    a, *others = sites("a", *names)
    await a.start(max_outbox_bytes="1MiB")
    for site in others:
        await site.start()
        await site.join()
    await a.join()
    large = "y" * 400_000
    ids = [f"large{number}" for number in range(4)]
    for each in ids:
        await a.emit(each, payload={"text": large})
    await a.apply(*[peer(site.name, site.port) for site in others])
    for site in others:
        await site.holds(*ids)
    assert most_held() <= MIB
    await until(lambda: a.running.outbox.held == 0, "nothing to be held any more")


async def test_a_link_that_waits_for_room_is_paused_and_ended_at_once(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start(max_outbox_bytes="1MiB")
    await a.join()
    await fill(a, 100)
    async with crowd(a) as (silent, port):
        await a.apply(*[peer(f"s{number}", port, limits=LONGEST) for number in range(20)])
        outbox = a.running.outbox
        await until(lambda: outbox.waiting == 20 - len(silent.heard) > 5, "the rest to wait")
        heard = {*silent.heard}
        waiting = [name for name in (f"s{number}" for number in range(20)) if name not in heard]
        for name in waiting:
            await a.ask("links.pause", group="edge", peer=name)
        await until(lambda: outbox.waiting == 0, "no link to wait")
        for name in waiting:
            await a.ask("links.resume", group="edge", peer=name)
        await until(lambda: outbox.waiting == len(waiting), "them to wait again")
        assert {*silent.heard} == heard
        await a.stop()
        assert outbox.held == outbox.waiting == 0


async def test_a_batch_is_out_of_memory_when_it_is_done_and_when_its_link_backs_off(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    await b.join()
    await a.join(b)
    async with crowd(a) as (_, port):
        with uncollected():
            ids = await fill(a, 10)
            await b.holds(*ids)
            await a.caught_up("b")
            await until(lambda: not carried(), "the last page to be gone")
            slow = {"baseBackoff": "1h", "maxBackoff": "1h"}
            await a.apply(peer("s", port, limits={"timeout": "200ms"}, retry=slow))
            await until(carried, "a batch to be on its way")
            await a.in_state("s", "backing-off", "timeout")
            await until(lambda: not carried(), "the batch to be gone")
        assert a.running.outbox.held == 0
