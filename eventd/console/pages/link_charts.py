"""The charts on the page of a link: 15 minutes of its rates and its lag, with their figures."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from eventd.console.drawing.sparkline import Sparkline, by_minute, draw_sparkline
from eventd.console.pages.visit import Visit
from eventd.errors import EventdError


class Chart(NamedTuple):
    """A chart. `minutes`: its figures by the minute, the newest first; `unit`: the format of its values."""

    title: str
    unit: str
    drawn: Sparkline
    minutes: list[float | None]


class _Column(NamedTuple):
    kind: str
    name: str
    title: str
    unit: str
    join: Callable[[list[float]], float]


_COLUMNS: Final = (
    _Column("link", "eventsPerSecond", "Events sent", "rate", fmean),
    _Column("link", "bytesPerSecond", "Bytes sent", "bytes", fmean),
    _Column("link", "lagSeconds", "Lag", "lag", max),
    _Column("inbound", "eventsPerSecond", "Events received", "rate", fmean),
)


async def read_charts(visit: Visit, group: str, peer: str) -> dict[str, Any]:
    """Return the charts of a link, and whether all workers of the node have answered; no charts without rates."""
    found: dict[str, Any] = {"charts": [], "complete": True, "histories": _histories(visit, group, peer)}
    if not visit.view.may("rates.show", group):
        return found
    try:
        shown = await visit.view.call("rates.show", group=group, link=peer)
    except EventdError:
        return found
    series = {one["kind"]: one for one in shown["series"]}
    per_minute = max(1, 60 // shown["intervalSeconds"])
    found["complete"] = shown["complete"]
    found["charts"] = [
        Chart(column.title, column.unit, draw_sparkline(values), by_minute(values, per_minute, column.join))
        for column in _COLUMNS
        if (values := series.get(column.kind, {}).get(column.name))
    ]
    return found


def _histories(visit: Visit, group: str, peer: str) -> str:
    """Return the URL of longer histories of a link; empty without the setting."""
    return visit.histories.replace("{group}", quote(group, safe="")).replace("{peer}", quote(peer, safe=""))
