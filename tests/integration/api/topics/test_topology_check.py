"""The routing graph predicts what happens: random routers that a node accepts, and one record at each topic."""

from __future__ import annotations

import random
from itertools import permutations

from eventd.egress.routers.graph import Graph
from eventd.egress.routers.projection import Options, Router
from tests.support.fresh import on_sqlite
from tests.support.v0 import Server

GRAPHS = 8
MOST = 400
"""Copies of one record beyond which a graph is left out: it would take long, and say no more."""
KINDS = (Options(), Options(), Options(allow_cycle=True), Options(fan_in=True), Options(fan_in=True))


async def build(server: Server, topics: list[str], chance: random.Random) -> Graph:
    """Ask for routers at random; those that were taken."""
    taken: list[Router] = []
    kinds = chance.choice([KINDS, KINDS, (Options(fan_in=True),), (Options(allow_cycle=True),)])
    pairs = [*permutations(topics, 2)]
    for source, dest in chance.sample(pairs, k=chance.randint(2, len(pairs))):
        router = Router(f"{source}->{dest}", source, dest, chance.choice(kinds))
        body = {"source": source, "dest": dest} | {
            "allow_cycle": router.options.allow_cycle,
            "fan_in": router.options.fan_in,
        }
        told = await server.ask("PUT", f"/routers/{router.name}", body)
        graph = Graph([*taken, router])
        if told.status == 201:
            taken.append(router)
        else:
            assert told.code in ("router_cycle", "topic_exists_incompatible")
        allowed = graph.cycle_closed_by(router) is None and graph.meets(router) is None
        assert allowed == (told.status == 201), f"{router} beside {taken}"
    return Graph(taken)


async def rest(server: Server, graph: Graph) -> None:
    """Until nothing is on its way any more, twice in a row."""
    calm = 0
    while calm < 2:
        shown = [(await server.ask("GET", f"/routers/{name}")).body for name in graph.routers]
        assert all(router["state"] == "running" for router in shown), shown
        calm = calm + 1 if not any(router["lag"] for router in shown) else 0


async def heads(server: Server, topics: list[str]) -> dict[str, int]:
    found = {}
    for topic in topics:
        told = await server.get(topic)
        found[topic] = told.body["head_seq"] if told.status == 200 else 0
    return found


@on_sqlite
async def test_what_is_foretold_of_a_graph_is_what_becomes_of_a_record(stored: Server, chance: random.Random) -> None:
    compared = 0
    for number in range(GRAPHS):
        topics = [f"t{number}{letter}" for letter in "abcd"[: chance.randint(2, 4)]]
        graph = await build(stored, topics, chance)
        for topic in topics:
            foretold = graph.predict(topic)
            if sum(told.copies for told in foretold.values()) > MOST or any(t.endless for t in foretold.values()):
                continue
            before = await heads(stored, topics)
            await stored.write(topic, "one")
            await rest(stored, graph)
            after = await heads(stored, topics)
            became = {at: after[at] - before[at] - (at == topic) for at in topics}
            wanted = {at: foretold[at].copies if at in foretold else 0 for at in topics}
            assert became == wanted, f"from {topic}:\n{graph.draw()}"
            compared += 1
    assert compared > GRAPHS
