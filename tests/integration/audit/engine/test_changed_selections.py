"""An audit finds nothing wrong with selections that an operator changed, of real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from eventd.audit.engine.request import AuditRequest
from eventd.lake.layout import MINUTE
from eventd.testing import ManualClock
from tests.support.declared import PLAIN_GROUP, group, peer
from tests.support.local_spark import run_audit
from tests.support.sites import Site
from tests.support.stopped_nodes import ship


async def _change_selections(folder: Path) -> list[Site]:
    """Have `a` send `b` events by a selection that is narrowed, widened, deleted with its peer and declared again."""
    a, b = Site("a", folder), Site("b", folder)
    for site in (a, b):
        await site.start()
    try:
        await b.apply(group("b", port=b.port, secret=b.secret, **PLAIN_GROUP))
        await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP))
        changes: list[dict[str, Any]] = [{}, {"types": ["t"]}, {"types": ["t", "u"]}, {"subjectPrefixes": ["x/"]}]
        for at, selection in enumerate(changes):
            await a.apply(peer("b", b.port, **selection))
            await _emit(a, at)
        await a.stop()  # the batches of a deleted peer are deleted: they are shipped before
        ship(a.url, folder / "lake", now=a.clock.now() + MINUTE)
        await a.start()
        await a.ask("resources.delete", kind="EventPeer", name="edge-b")
        await a.settled()
        await a.apply(peer("b", b.port, types=["w"]))
        await a.emit("w-0", type="w")
        await a.caught_up("b")
    finally:
        for site in (a, b):
            await site.stop()
    return [a, b]


async def _emit(site: Site, number: int) -> None:
    for name, type, subject in (("t", "t", "x/1"), ("u", "u", "x/2"), ("v", "t", "y/1")):
        await site.emit(f"{name}-{number}", type=type, subject=subject)
    await site.caught_up("b")


def test_selections_that_an_operator_changed_lead_to_no_finding(tmp_path: Path) -> None:
    sites = asyncio.run(_change_selections(tmp_path))
    now = sites[0].clock.now() + MINUTE
    for site in sites:
        ship(site.url, tmp_path / "lake", now=now)
    report = run_audit(AuditRequest(lake=str(tmp_path / "lake"), out=str(tmp_path / "out")), clock=ManualClock(now))
    assert (report.verdict, report.findings, report.troubles) == ("complete", (), ())
    assert report.totals.delivered > 0
