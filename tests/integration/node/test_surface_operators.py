"""What operators see of the Routemaster surface of a whole node: metrics, over restarts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession

from eventd.testing import until
from tests.integration.node.test_routemaster_surface import EVENT, FLAGS, ask
from tests.support.sites import Site

LIMITED = FLAGS | {"routemaster_max_bytes": "1MiB", "routemaster_min_free": "256KiB"}


async def publish(site: Site, times: int = 1) -> None:
    for _ in range(times):
        assert (await ask(site, "POST", "/topics/orders", EVENT, user="shop--secret")).status == 200


async def subscribe(site: Site, callback: str = "https://app.example/", **more: Any) -> None:
    body = f'{{"topics":["orders"],"callback":"{callback}","uuid":"uuid-of-app","timeout":3600000}}'
    assert (await ask(site, "POST", "/subscription", body.encode(), user="shop--secret")).status == 204


def shown(site: Site) -> dict[str, float]:
    """The metrics of the surface, without what differs between handles."""
    found = {}
    for line in site.running.metrics.render().decode().splitlines():
        if line.startswith("routemaster_"):
            name, _, value = line.rpartition(" ")
            found[re.sub(r"--[0-9a-f]{12}", "", name)] = float(value)
    return found


async def measured(site: Site) -> dict[str, float]:
    """The metrics after a measurement that begins now."""
    await site.running._housekeeping._gauges._measure(())
    return shown(site)


async def test_metrics_show_what_was_published_and_what_waits_also_after_a_restart(
    sites: Callable[..., list[Site]],
) -> None:
    (site,) = sites("a")
    await site.start(**LIMITED)
    await publish(site)
    await subscribe(site)
    await publish(site, 3)
    found = await measured(site)
    sizes = found['routemaster_events_bytes_total{publisher="shop",topic="orders"}']
    assert sizes == 4 * (len("orders") + len("create") + len("https://shop.example/1"))
    expected = {
        'routemaster_events_published_total{publisher="shop",topic="orders"}': 4,
        'routemaster_subscriber_queue_events{subscriber="shop"}': 3,
        'routemaster_subscriber_queue_batches{subscriber="shop"}': 1,
        'routemaster_jobs_count{queue="main",status="instant"}': 0,  # the window is an hour
        'routemaster_jobs_count{queue="main",status="scheduled"}': 1,
        'routemaster_jobs_count{queue="aux",status="instant"}': 0,
        'routemaster_events_added_total{queue="shop"}': 3,
        'routemaster_events_removed_total{queue="shop"}': 0,
        'routemaster_process_total{status="start",type="web"}': 1,
        "routemaster_workers_scrubbed_total": 0,
        "routemaster_store_max_mem": 1 << 20,
        "routemaster_store_high_mark": (1 << 20) - (256 << 10),
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found["routemaster_store_bytes_used"] > 0
    await site.stop()
    await site.start(**LIMITED)
    again = await measured(site)
    assert {name: again.get(name) for name in expected} == expected
    assert 'routemaster_events_bytes_total{publisher="shop",topic="orders"}' not in again  # counts from the start


async def test_the_gauges_of_a_subscriber_that_ended_go_away(sites: Callable[..., list[Site]]) -> None:
    (site,) = sites("a")
    await site.start(**FLAGS)
    await subscribe(site)
    assert 'routemaster_subscriber_queue_events{subscriber="shop"}' in await measured(site)
    assert (await ask(site, "DELETE", "/subscriber", user="shop--secret")).status == 204
    assert (await ask(site, "DELETE", "/topics/orders", user="r" * 16)).status == 204
    assert [name for name in await measured(site) if "shop" in name or "orders" in name] == []


async def test_metrics_are_written_to_the_log_at_intervals(
    sites: Callable[..., list[Site]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventd.routemaster")
    (site,) = sites("a")
    await site.start(**FLAGS | {"routemaster_metrics_interval": "1s"})
    await publish(site, 2)
    await measured(site)

    def written() -> dict[str, dict[str, Any]]:
        lines = [vars(line) for line in caplog.records if line.getMessage() == "routemaster metric"]
        return {line["metric"]: line for line in lines}

    await until(lambda: "events.published" in written(), "the metrics in the log")
    lines = written()
    line = lines["events.published"]
    assert (line["kind"], line["value"], line["topic"], line["publisher"]) == ("counter", 2, "orders", "shop")
    assert "store.bytes_used" in lines
    assert "store.max_mem" not in lines  # there is no limit
    assert all(not name.startswith("routerd") for name in lines)


async def test_a_node_without_the_surface_has_no_series_of_it(site: Site) -> None:
    assert await measured(site) == {}


async def doctor(site: Site) -> dict[str, dict[str, Any]]:
    """The findings of the running node's doctor about the surface and its subscribers, by their codes."""
    assert site.running.api_address is not None
    host, port = site.running.api_address
    async with ClientSession() as session, session.get(f"http://{host}:{port}/api/v1/doctor") as answer:
        assert answer.status == 200
        checks = (await answer.json())["checks"]
    about = ("callback rm/", "Routemaster surface")
    return {check.get("code", ""): check for check in checks if check["name"].startswith(about)}


async def test_doctor_of_the_node_knows_the_surface_its_settings_and_its_subscribers(
    sites: Callable[..., list[Site]],
) -> None:
    (site,) = sites("a")
    await site.start(**FLAGS)
    assert await doctor(site) == {}
    await site.stop()
    small = {"routemaster_max_bytes": "1KiB", "routemaster_listen": "0.0.0.0:0", "routemaster_root_key": ""}
    await site.start(**FLAGS | small)
    await subscribe(site)
    assert set(await doctor(site)) == {"surface-without-tls", "surface-no-root-key", "callback-untried"}
    while (answer := await ask(site, "POST", "/topics/orders", EVENT, user="shop--secret")).status == 200:
        pass
    assert answer.status == 503
    found = await doctor(site)
    assert set(found) == {"surface-without-tls", "surface-no-root-key", "surface-full", "callback-untried"}
    assert "accepts tokens in plain text" in found["surface-without-tls"]["detail"]
    assert found["surface-full"]["status"] == "fail"
    assert found["surface-full"]["detail"].endswith(": publishers get 503")
