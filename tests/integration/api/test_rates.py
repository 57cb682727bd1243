"""The operation that shows rates: what a real node counts, page by page, and over several workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import msgspec

from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.framework.worker_rates import WorkerRates
from eventd.api.listener.runner import Runner
from eventd.observe.metrics import Metrics
from eventd.observe.rates import INTERVAL_SECONDS, LINK, RateFilter, RateHistory
from eventd.observe.traffic import TrafficSample
from eventd.runtime.chance import SYSTEM
from eventd.runtime.worker_share import Share
from eventd.testing import ManualClock, until
from tests.integration.conftest import MakeSites
from tests.support.sites import Site


async def _rates(site: Site, **query: str) -> Any:
    assert site.running.api_address is not None
    host, port = site.running.api_address
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/api/v1/rates", params=query) as answer,
    ):
        return answer.status, await answer.json()


def _peak(values: list[float | None]) -> float:
    return max(value or 0.0 for value in values)


async def _sampled(site: Site, clock: ManualClock) -> None:
    """Wait until another sample was taken."""
    before = site.running.rates.history.read(RateFilter()).ticks

    async def later() -> bool:
        clock.advance(INTERVAL_SECONDS)
        return site.running.rates.history.read(RateFilter()).ticks != before

    await until(later, "a sample")


async def test_a_node_shows_the_rates_of_what_it_emitted_delivered_and_received(sites: MakeSites) -> None:
    clocks = ManualClock(), ManualClock()
    [a], [b] = sites("a", clock=clocks[0]), sites("b", clock=clocks[1])
    for site, other in ((a, b), (b, a)):
        await site.start()
        await site.join(other)
    await a.emit(*(f"e{number}" for number in range(50)))

    async def delivered() -> bool:
        for clock in clocks:
            clock.advance(1)
        return len(await b.ids()) == 50 and (await a.link("b"))["lagEvents"] == 0

    await until(delivered, "b to hold all events")
    for site, clock in ((a, clocks[0]), (b, clocks[1])):
        await _sampled(site, clock)
    status, told = await _rates(a, group="edge", seconds="900")
    assert (status, told["complete"], told["next"], told["intervalSeconds"]) == (200, True, None, 5)
    series = {each["kind"]: each for each in told["series"]}
    assert _peak(series["group"]["emittedPerSecond"]) > 0
    assert _peak(series["link"]["eventsPerSecond"]) > 0 < _peak(series["link"]["bytesPerSecond"])
    assert series["link"]["node"] == "b"
    _, told = await _rates(b, group="edge", link="a", kind="inbound")
    assert [_peak(each["eventsPerSecond"]) > 0 for each in told["series"]] == [True]
    _, told = await _rates(b, group="edge", kind="group")
    assert _peak(told["series"][0]["receivedPerSecond"]) > 0


async def test_rates_of_topics_come_page_by_page_with_their_names(sites: MakeSites) -> None:
    clock = ManualClock()
    [site] = sites("a", clock=clock)
    await site.start()
    assert site.running.api_address is not None
    host, port = site.running.api_address
    async with aiohttp.ClientSession() as session:
        for name in ("orders", "bills", "mails"):
            records = {"records": [{"data": {"n": 1}}]}
            async with session.post(f"http://{host}:{port}/v0/topics/{name}", json=records) as answer:
                assert answer.status in (200, 201), await answer.text()
    await _sampled(site, clock)
    names, token = [], ""
    for _ in range(3):
        _, told = await _rates(site, kind="topic", limit="1", after=token)
        names += [each["topic"] for each in told["series"]]
        token = told["next"] or ""
    assert sorted(names) == ["bills", "mails", "orders"]
    assert token == ""
    _, told = await _rates(site, topic="bills")
    assert [(each["topic"], _peak(each["recordsPerSecond"]) > 0) for each in told["series"]] == [("bills", True)]
    assert (await _rates(site, topic="nobody"))[0] == 404
    assert (await _rates(site, after="%%"))[0] == 400
    assert (await _rates(site, seconds="901"))[0] == 400


async def test_a_command_on_the_database_has_no_rates(site: Site) -> None:
    told = await site.ask("rates.show")
    assert (told["series"], told["complete"], told["at"]) == ([], False, None)


async def test_the_rates_of_all_workers_add_up_and_one_that_is_down_is_reported(tmp_path: Path) -> None:
    histories = [RateHistory(), RateHistory()]
    for history in histories:
        history.add(1, 5.0, TrafficSample({("edge", "b"): (10, 100)}, {}, {}, {}), {})
    workers = [WorkerPeers(Share(index, 2, folder=str(tmp_path)), dict, Metrics()) for index in range(2)]
    rates = [WorkerRates(history, each) for history, each in zip(histories, workers, strict=True)]
    page, complete = await rates[0].read(RateFilter(kind=LINK))
    assert (page.series[0][1][0], complete) == ([2.0], False)
    app = aiohttp.web.Application()
    runner = Runner(app, SYSTEM)
    await runner.setup()
    await workers[1].open(runner)
    try:
        page, complete = await rates[0].read(RateFilter(kind=LINK))
        assert (page.series[0][1][0], complete) == ([4.0], True)
        answer = await workers[0].ask_worker_of("edge", "rates", msgspec.json.encode(RateFilter()), seconds=2.0)
        assert answer is not None
    finally:
        await workers[1].close()
        await runner.cleanup()
