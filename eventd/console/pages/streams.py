"""Streams: the topics that clients use over QUIC, by tenant, and the tenants and caches that are declared."""

from __future__ import annotations

from typing import Any, Final

from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.errors import EventdError

_STREAM: Final = "stream:"
"""Beginning of the names of topics that are streams: `stream:TENANT:NAMESPACE:STREAM`."""
_CHECKED: Final = ("tenant ", "cache ", "caches")
"""Prefixes of the names of doctor's checks of tenants and caches."""


async def show_streams(visit: Visit) -> ShownPage:
    """Show a page of the streams, or of those of the `tenant` in the query, and all tenants and caches."""
    tenant = visit.asked("tenant")
    prefix = f"{_STREAM}{tenant}:" if tenant else _STREAM
    found = await visit.view.ask("GET", "topics", prefix=prefix, cursor=visit.asked("after"), page_size=visit.limit)
    tenants, caches = await _read_declared(visit, "StreamTenant"), await _read_declared(visit, "StreamCache")
    checks = await _read_checks(visit) if tenants or caches else {}
    data = {
        "streams": [{"name": _name_of(one["topic"]), **one} for one in found["topics"]],
        "next": found.get("next_cursor"),
        "tenant": tenant,
        "tenants": tenants,
        "caches": caches,
        "checks": checks,
    }
    return ShownPage("Streams", "streams.html", data, live=not visit.asked("after"))


def _name_of(topic: str) -> str:
    """Return the name of a stream as commands write it: TENANT/NAMESPACE/STREAM."""
    return topic.removeprefix(_STREAM).replace(":", "/")


async def _read_declared(visit: Visit, kind: str) -> list[dict[str, Any]] | None:
    """Return the resources of a kind; None for keys that may not see them."""
    if not visit.view.may("resources.list") or not visit.view.sees(""):
        return None
    found: list[dict[str, Any]] = (await visit.view.call("resources.list", kind=kind))["resources"]
    return found[:MOST_ROWS]


async def _read_checks(visit: Visit) -> dict[str, dict[str, Any]]:
    """Return doctor's checks of tenants and caches: by name of the tenant or cache, its worst check."""
    if not visit.view.may("doctor.examine"):
        return {}
    try:
        report = await visit.look("doctor.examine")
    except EventdError:
        return {}
    checks = [] if report is None else report.content["checks"]
    order = ("pass", "skip", "warn", "fail")
    mine = [one for one in checks if one["name"].startswith(_CHECKED) and one["status"] in order]
    return {one["name"]: one for one in sorted(mine, key=lambda one: order.index(one["status"]))}
