from __future__ import annotations
import asyncio, os, sys
from collections import Counter
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.ports import free_port
import pytest

def kinds():
    return Counter(f"{t.get_coro().__qualname__}|{t.get_name() if not t.get_name().startswith('Task-') else ''}" for t in asyncio.all_tasks())

@pytest.mark.parametrize("n", range(int(os.environ.get("REPEAT","1"))))
async def test_probe(sites: MakeSites, n) -> None:
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    dead = free_port()

    async def turn(number: int) -> None:
        await a.apply(peer("b", b.port, types=["t", f"x{number}"]), peer("dead", dead))
        await a.emit(f"e{number}")
        await b.holds(f"e{number}")
        await a.ask("links.pause", group="edge", peer="b")
        await a.ask("links.resume", group="edge", peer="b")
        await a.caught_up("b")
        await a.ask("deliveries.redeliver", group="edge", peer="b", ids=[f"e{number}"])
        await a.caught_up("b")
        await a.running.reload()
        await a.ask("resources.delete", kind="EventPeer", name="edge-dead")
        await a.ask("resources.delete", kind="EventPeer", name="edge-b")
        await a.settled()

    for number in range(3):
        await turn(number)
    base = kinds()
    log = open("/tmp/probe","a")
    print("base", sum(base.values()), dict(base), file=log)
    for number in range(3, 18):
        await turn(number)
        now = kinds()
        plus, minus = now - base, base - now
        print(n, number, sum(now.values()), len(os.listdir("/proc/self/fd")), "plus", dict(plus), "minus", dict(minus), file=log)
    for i in range(100):
        now = kinds()
        if now == base: break
        await asyncio.sleep(0.02)
    print("after", i*0.02, "plus", dict(kinds()-base), "minus", dict(base-kinds()), file=log)
