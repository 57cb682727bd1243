"""The gauges of a running node that follow from what is declared, or from what the node itself has decided."""

from __future__ import annotations

from pathlib import Path

from eventd.log.cursors.cursors import set_paused
from eventd.log.cursors.holding import DISABLED_BY
from eventd.node.gauges import MEASURE_SECONDS
from eventd.testing import ManualClock, until
from tests.support.declared import callback, group
from tests.support.sites import Site


async def _shows(site: Site, clock: ManualClock, name: str, value: float, **labels: str) -> None:
    async def shown() -> bool:
        clock.advance(MEASURE_SECONDS)
        return site.running.metrics.registry.get_sample_value(f"routerd_eventd_{name}", labels) == value

    await until(shown, f"{name} to be {value:g}")


async def test_the_objectives_of_a_group_are_its_slo_or_the_defaults(tmp_path: Path) -> None:
    clock = ManualClock()
    site = await Site("a", tmp_path, clock=clock).start()
    try:
        await site.apply(group("a"))
        await _shows(site, clock, "slo_lag_seconds", 60, group="edge", kind="warn")
        await _shows(site, clock, "slo_lag_seconds", 180, group="edge", kind="fail")
        slo = {"groupRef": "edge", "delivery": {"lagWarnSeconds": 5, "lagFailSeconds": 20}}
        await site.apply(
            {
                "apiVersion": "federation.routerd.net/v1alpha1",
                "kind": "FederationSLO",
                "metadata": {"name": "s"},
                "spec": slo,
            }
        )
        await _shows(site, clock, "slo_lag_seconds", 5, group="edge", kind="warn")
        await _shows(site, clock, "slo_lag_seconds", 20, group="edge", kind="fail")
    finally:
        await site.stop()


async def test_a_callback_that_an_operator_paused_is_not_disabled(tmp_path: Path) -> None:
    clock = ManualClock()
    site = await Site("a", tmp_path, clock=clock).start()
    try:
        await site.apply(group("a"), callback("hook"))
        database = site.running.log.database
        for by, disabled in (("ann", 0), (DISABLED_BY, 1), ("ann", 0)):
            await database.write(set_paused, "callback:hook", at=clock.now(), by=by)
            await _shows(site, clock, "callback_disabled", disabled, callback="hook")
            await _shows(site, clock, "callback_state", 1, callback="hook", state="paused")
        await database.write(set_paused, "callback:hook", at=None, by=DISABLED_BY)
        await _shows(site, clock, "callback_state", 0, callback="hook", state="paused")
        await _shows(site, clock, "callback_disabled", 0, callback="hook")
    finally:
        await site.stop()
