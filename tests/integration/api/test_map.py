"""The map of a group among real nodes: what they tell each other, and what a node shows of it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from eventd.node import peer_reports
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.sites import Site


async def show(site: Site, **query: str) -> Any:
    assert site.running.api_address is not None
    host, port = site.running.api_address
    params = {"group": "edge"} | query
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/api/v1/map", params=params) as answer,
    ):
        told = await answer.json()
        assert answer.status == 200, told
        return told


def answers(told: Any) -> dict[str, str]:
    return {node["node"]: node["answer"] for node in told["nodes"]}


def links(told: Any) -> dict[tuple[str, str], Any]:
    return {(link["from"], link["to"]): link for link in told["links"]}


async def joined(sites: MakeSites, *names: str) -> list[Site]:
    """Running nodes, each with all others as its peers."""
    made = sites(*names)
    for site in made:
        await site.start()
    for site in made:
        await site.join(*(other for other in made if other is not site))
    return made


async def test_a_map_shows_both_ends_of_a_link(sites: MakeSites) -> None:
    a, b = await joined(sites, "a", "b")
    await a.emit("e1")
    await b.holds("e1")
    await a.caught_up("b")
    told = await show(a, wait="5")
    assert answers(told) == {"a": "self", "b": "answered"}
    link = links(told)["a", "b"]
    assert link["sender"]["state"] == "running"
    assert link["sender"]["lagEvents"] == 0
    assert link["receiver"]["silentSeconds"] < 30
    assert link["findings"] == []
    assert set(links(told)) == {("a", "b"), ("b", "a")}
    assert links(told)["b", "a"]["sender"]["via"] == ""
    text = str(told)
    assert "127.0.0.1" not in text, "no addresses"


@pytest.fixture
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers ask each other, and look at their own links, several times a second."""
    for name in ("ROUND_SECONDS", "OWN_SECONDS"):
        monkeypatch.setattr(peer_reports, name, 0.2)


@pytest.mark.usefixtures("_short_rounds")
async def test_a_map_reaches_two_hops(sites: MakeSites) -> None:
    a, b, c = sites("a", "b", "c")
    for site in (a, b, c):
        await site.start()
    await a.join(b)
    await b.join(a, c)
    await c.join(b)
    await show(a, wait="5")

    async def told_by_b() -> bool:
        a.running.groups["edge"].reports._peers["b"].due = 0
        return answers(await show(a)).get("c") == "relayed"

    await until(told_by_b, "b to pass on what c told", seconds=25)
    told = await show(a)
    assert links(told)["c", "b"]["sender"]["via"] == "b"
    [node] = [node for node in told["nodes"] if node["node"] == "c"]
    assert node["via"] == "b"
    assert node["console"] == ""


async def test_a_node_that_does_not_share_is_not_told_and_says_so(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    await a.join(b)
    await b.apply(
        group("b", port=b.port, secret=b.secret, name="edge", status={"share": "none"}), peer("a", a.port, group="edge")
    )
    told = await show(a, wait="5")
    assert answers(told) == {"a": "self", "b": "not-shared"}
    assert set(links(told)) == {("a", "b")}


@pytest.mark.usefixtures("_short_rounds")
async def test_a_node_that_is_down_delays_no_map_and_keeps_its_last_answer(sites: MakeSites) -> None:
    a, b = await joined(sites, "a", "b")
    await show(a, wait="5")
    await b.stop()
    a.running.groups["edge"].reports._peers["b"].due = 0

    async def down() -> bool:
        return answers(await show(a))["b"] == "unreachable"

    await until(down, "a to notice that b is down", seconds=25)
    assert links(await show(a))["b", "a"]["sender"] is not None


async def test_only_its_own_operator_gets_the_address_of_a_console(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    declared = peer("b", b.port, group="edge")
    declared["spec"]["console"] = "https://b.example/console/"
    await a.apply(group("a", port=a.port, secret=a.secret, name="edge"), declared)
    await b.join(a)
    assert [node["console"] for node in (await show(a, wait="5"))["nodes"]] == ["", "https://b.example/console/"]
    assert "example" not in str(await show(b, wait="5"))


async def test_nobody_is_asked_while_no_map_is_open(sites: MakeSites) -> None:
    a, b = await joined(sites, "a", "b")
    await a.emit("e1")
    await b.holds("e1")
    assert not a.running.groups["edge"].reports._peers
    assert "status_queries_total{" not in a.running.metrics.render().decode()


async def test_an_open_map_lets_its_peers_ask_theirs_and_no_further(sites: MakeSites) -> None:
    a, b = await joined(sites, "a", "b")
    await show(a, wait="5")
    here, there = (site.running.groups["edge"].reports for site in (a, b))

    async def asked_back() -> bool:
        return "a" in there._peers and there._peers["a"].report is not None

    await until(asked_back, "b to ask a")
    assert there._until[0] > 0 == there._until[1], "b asks for the map of a, and has none of its own"
    assert here._until[0] == 0, "a question without hops is no lease, or two nodes would ask each other for ever"


async def test_nodes_ask_no_more_when_the_lease_is_over(sites: MakeSites) -> None:
    a, _ = await joined(sites, "a", "b")
    await show(a, wait="5")
    reports = a.running.groups["edge"].reports
    asking, reports._until = reports._task, [0.0, 0.0]
    assert asking is not None
    await asyncio.wait_for(asking, 15)
    assert answers(await show(a)) == {"a": "self", "b": "answered"}, "what is known stays, with its age"
    assert reports._task is not asking, "the next look asks again"


async def test_all_maps_share_one_answer(sites: MakeSites) -> None:
    a, _ = await joined(sites, "a", "b")
    await asyncio.gather(*(show(a, wait="5") for _ in range(20)))
    [line] = [line for line in a.running.metrics.render().decode().splitlines() if "status_queries_total{" in line]
    assert line.endswith('result="answered"} 1.0')


async def test_a_command_on_the_database_shows_the_nodes_own_links(sites: MakeSites) -> None:
    a, _ = await joined(sites, "a", "b")
    told = await a.ask("map.show", group="edge")
    assert answers(told) == {"a": "self", "b": "unasked"}
    assert links(told)["a", "b"]["receiver"] is None


async def test_a_node_without_peers_is_a_map_of_one_node(sites: MakeSites) -> None:
    [a] = await joined(sites, "a")
    told = await show(a, wait="5")
    assert (answers(told), told["links"], told["leftOut"]) == ({"a": "self"}, [], 0)


async def test_a_sender_over_v1_is_on_the_map(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    await b.join()
    await a.apply(group("a", port=a.port, secret=a.secret, name="edge"), peer("b", b.port, protocol="v1"))
    await a.emit("e1")
    await b.holds("e1")
    await b.running.rates._sample(1, 5.0)
    link = links(await show(b))["a", "b"]
    assert link["receiver"]["eventsPerSecond"] == 0.2
    assert link["receiver"]["silentSeconds"] is None
    assert answers(await show(a, wait="5")) == {"a": "self", "b": "older"}


async def test_a_key_for_some_names_sees_the_maps_and_rates_of_these_groups_alone(sites: MakeSites) -> None:
    [a] = sites("a")
    await a.start(api_keys="reader-of-one-group:r:edge")
    assert a.running.api_address is not None
    host, port = a.running.api_address
    await a.join()
    await a.apply(group("a", port=a.port + 1, secret=a.secret, name="other"))
    found = {}
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer reader-of-one-group"}) as session:
        for path in ("map?group=edge", "map?group=other", "rates?group=edge", "rates?group=other", "rates"):
            async with session.get(f"http://{host}:{port}/api/v1/{path}") as answer:
                found[path] = answer.status
    assert [*found.values()] == [200, 403, 200, 403, 403]


@pytest.mark.parametrize("wait", ["-1", "6"])
async def test_a_wait_is_bounded(sites: MakeSites, wait: str) -> None:
    [a] = await joined(sites, "a")
    with pytest.raises(AssertionError):
        await show(a, wait=wait)
