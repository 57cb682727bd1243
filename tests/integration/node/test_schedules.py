"""Scheduled plugins: they run once when due, and their parts end with the resource that requested them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventd.node import schedules
from eventd.plugins.run.without_events import BROKEN_OFF
from eventd.runtime.clock import SECOND, Countdown
from eventd.store.engine.changes import POLL
from eventd.store.parts.part import StoredPart
from eventd.store.parts.reading import read_parts
from eventd.store.rows.runs import NewRun, Run, RunStatus, begin_run, read_runs
from eventd.testing import ManualClock, until
from tests.integration.conftest import MakeSites
from tests.support.child_processes import is_running
from tests.support.derived import PLUGIN_API, plugin, program
from tests.support.sites import Site

ONE = """
answer([{"apiVersion": "net.routerd.net/v1alpha1", "kind": "IPv4Route", "metadata": {"name": "fallback"},
         "spec": {"trigger": request["spec"]["trigger"], "before": request["spec"]["previousDynamicGeneration"]}}])
"""


def source(name: str = "hourly", **spec: Any) -> dict[str, Any]:
    found = {"pluginRef": "routes", "ttl": "5m", "triggers": [{"type": "interval", "every": "1h"}], **spec}
    return {"apiVersion": PLUGIN_API, "kind": "DynamicConfigSource", "metadata": {"name": name}, "spec": found}


async def parts(site: Site) -> dict[str, StoredPart]:
    found = await site.running.log.database.read(read_parts)
    return {part.source: part for part in found}


async def runs(site: Site) -> list[Run]:
    return await site.running.log.database.read(read_runs)


async def ran(site: Site, times: int) -> None:
    async def so() -> bool:
        return [run.status for run in await runs(site)].count(RunStatus.SUCCEEDED) == times

    await until(so, f"{times} runs", seconds=20)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def site(sites: MakeSites, clock: ManualClock) -> Site:
    (made,) = sites("onprem", clock=clock)
    return await made.start()


async def test_a_source_runs_its_plugin_by_its_interval_and_bounds_how_long_it_holds(
    site: Site, clock: ManualClock, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    (part,) = (await parts(site)).values()
    assert (part.source, part.owner, part.generation) == ("DynamicConfigSource/hourly", "DynamicConfigSource/hourly", 1)
    assert part.resources[0]["spec"] == {"trigger": {"type": "interval", "topic": ""}, "before": 0}
    assert part.expires_at - part.observed_at == 300 * SECOND, "the plugin said ten minutes, the source five"
    clock.advance(3599)
    assert len(await runs(site)) == 1
    clock.advance(1)
    await ran(site, 2)
    (part,) = (await parts(site)).values()
    assert (part.generation, part.resources[0]["spec"]["before"]) == (2, 1)


async def test_a_plugin_with_an_interval_runs_by_itself(site: Site, tmp_path: Path) -> None:
    await site.apply(plugin(program(tmp_path, ONE), triggers=[{"type": "interval", "every": "1h"}]))
    await ran(site, 1)
    assert list(await parts(site)) == ["Plugin/routes"]
    assert [(run.trigger, run.subscription) for run in await runs(site)] == [("interval", "")]


async def test_a_restart_neither_skips_a_run_nor_makes_one_too_many(
    site: Site, clock: ManualClock, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    await site.stop()
    clock.advance(1800)
    await site.start()
    await until(lambda: any(1700 < wait < 1801 for wait in clock.waits), "the schedule to wait for the rest")
    assert len(await runs(site)) == 1
    await site.stop()
    clock.advance(1801)
    await site.start()
    await ran(site, 2)


async def test_a_clock_that_is_put_back_costs_no_more_than_one_interval(
    site: Site, clock: ManualClock, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    await site.stop()
    clock.set_wall(clock.now() - 100 * 86400 * SECOND)
    await site.start()
    await until(lambda: any(3590 < wait < 3601 for wait in clock.waits), "the schedule to wait for an hour")
    clock.advance(3600)
    await ran(site, 2)


@pytest.mark.parametrize("step", [-86400, 86400])
async def test_a_step_of_the_wall_clock_moves_no_run(
    site: Site, clock: ManualClock, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    countdowns: list[Countdown] = []
    monkeypatch.setattr(schedules, "Countdown", lambda clock: countdowns.append(Countdown(clock)) or countdowns[-1])
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    await until(lambda: any(3590 < wait < 3601 for wait in clock.waits), "the schedule to wait for an hour")
    clock.advance(1000)
    clock.set_wall(clock.now() + step * SECOND)
    last = (await runs(site))[0]
    left = countdowns[0].left(last.started_at, last.started_at + 3600 * SECOND)
    assert left == pytest.approx(2600, abs=2 * POLL)  # applying moves the clock until the node has noticed
    clock.advance(2600)
    await ran(site, 2)
    await until(lambda: any(3590 < wait < 3601 for wait in clock.waits), "the schedule to wait for an hour again")


async def test_a_run_that_its_node_did_not_survive_is_said_to_be_broken_off(
    site: Site, clock: ManualClock, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    killed = NewRun(plugin="routes", trigger="interval", started_at=clock.now(), cursor="DynamicConfigSource/hourly")
    await site.running.log.database.write(begin_run, killed)
    await site.stop()
    await site.start()

    async def broken_off() -> bool:
        return [run.status for run in await runs(site)] == [RunStatus.INTERRUPTED, RunStatus.SUCCEEDED]

    await until(broken_off, "the run to be put right")


@pytest.mark.parametrize("gone", ["the source", "the node"])
async def test_a_run_that_is_broken_off_is_said_to_be(
    site: Site, clock: ManualClock, tmp_path: Path, gone: str
) -> None:
    begun = tmp_path / "begun"
    executable = program(tmp_path, f"open({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)")
    await site.apply(plugin(executable, timeout="2h"), source())
    await until(lambda: begun.exists() and begun.read_text(), "the run to begin")
    clock.advance(5)
    if gone == "the source":
        await site.apply(plugin(executable, timeout="2h"), prune=True)
    else:
        await site.stop()
        await site.start()
    await until(lambda: not is_running(int(begun.read_text())), "the program to be ended")
    run = (await runs(site))[-1]
    assert (run.status, run.error) == (RunStatus.INTERRUPTED, BROKEN_OFF)
    assert run.completed_at is not None
    assert run.completed_at >= run.started_at + 5 * SECOND


async def test_a_failing_run_is_in_the_books_and_the_next_one_comes_in_time(
    site: Site, clock: ManualClock, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, "sys.exit(42)")), source())

    async def failed() -> bool:
        return [run.status for run in await runs(site)] == [RunStatus.FAILED]

    await until(failed, "the run to fail")
    program(tmp_path, ONE)

    def rests() -> bool:
        clock.advance(0.02)  # other waits are shorter than a second too
        return any(3590 < wait < 3601 for wait in clock.waits)

    await until(rests, "the schedule to wait for the next hour")
    clock.advance(3600)
    await ran(site, 1)
    assert list(await parts(site)) == ["DynamicConfigSource/hourly"]


async def test_what_it_gave_ends_after_a_grace_when_the_source_is_deleted(site: Site, tmp_path: Path) -> None:
    await site.apply(plugin(program(tmp_path, ONE)), source())
    await ran(site, 1)
    await site.apply(plugin(program(tmp_path, ONE)), prune=True)
    (part,) = (await parts(site)).values()
    assert site.clock.now() <= part.expires_at <= site.clock.now() + 30 * SECOND
    assert len(await runs(site)) == 1
