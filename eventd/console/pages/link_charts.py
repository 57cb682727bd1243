"""The charts on the pages of a link and of a callback: 15 minutes of its rates, with their figures."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from eventd.console.drawing.sparkline import Sparkline, by_minute, draw_sparkline
from eventd.console.pages.visit import MOST_ROWS, Visit
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


_CALLBACK_COLUMNS: Final = (
    _Column("callback", "requestsPerSecond", "Requests", "rate", fmean),
    _Column("callback", "failedPerSecond", "Requests not accepted", "rate", fmean),
    _Column("callback", "eventsPerSecond", "Events accepted", "rate", fmean),
)


class Acceptance(NamedTuple):
    """The requests to the endpoint of a callback in the last 15 minutes, and those that it accepted."""

    requests: int
    accepted: int


async def read_charts(visit: Visit, group: str, peer: str) -> dict[str, Any]:
    """Return the charts of a link, and whether all workers of the node have answered; no charts without rates."""
    histories = _histories(visit, group, peer)
    found = {"charts": [], "complete": True, "histories": histories}
    if shown := await _read_rates(visit, group=group, link=peer):
        found |= {"charts": _drawn(shown, _COLUMNS), "complete": shown["complete"]}
    return found


async def read_callback_charts(visit: Visit, callback: str) -> dict[str, Any]:
    """Return the charts of a callback, and how many requests its endpoint accepted as `success`, None without any."""
    found = {"charts": [], "complete": True, "histories": "", "success": None}
    if shown := await _read_rates(visit, kind="callback", callback=callback):
        found |= {"charts": _drawn(shown, _CALLBACK_COLUMNS), "complete": shown["complete"]}
        found["success"] = _acceptance(shown).get(callback)
    return found


async def read_acceptance(visit: Visit) -> dict[str, Acceptance]:
    """Return the acceptance of the busiest callbacks, by name."""
    shown = await _read_rates(visit, kind="callback", limit=MOST_ROWS)
    return _acceptance(shown) if shown else {}


def _acceptance(shown: dict[str, Any]) -> dict[str, Acceptance]:
    """Return what the samples counted; nothing for nodes that report only rates, which do not say how many."""
    found = {}
    for one in shown["series"]:
        requests, failed = (sum(round(value or 0) for value in one.get(name, ())) for name in ("requests", "failed"))
        if requests:
            found[one["callback"]] = Acceptance(requests, requests - failed)
    return found


async def _read_rates(visit: Visit, **wanted: Any) -> dict[str, Any] | None:
    """Return the rates that the visitor may see; None without any."""
    if not visit.view.may("rates.show", wanted.get("group", "")):
        return None
    try:
        shown: dict[str, Any] = await visit.view.call("rates.show", **wanted)
    except EventdError:
        return None
    return shown


def _drawn(shown: dict[str, Any], columns: tuple[_Column, ...]) -> list[Chart]:
    series = {one["kind"]: one for one in shown["series"]}
    per_minute = max(1, 60 // shown["intervalSeconds"])
    return [
        Chart(
            column.title,
            column.unit,
            draw_sparkline(values, shown["intervalSeconds"]),
            by_minute(values, per_minute, column.join),
        )
        for column in columns
        if (values := series.get(column.kind, {}).get(column.name))
    ]


def _histories(visit: Visit, group: str, peer: str) -> str:
    """Return the URL of longer histories of a link; empty without the setting."""
    return visit.histories.replace("{group}", quote(group, safe="")).replace("{peer}", quote(peer, safe=""))
