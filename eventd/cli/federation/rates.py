"""routerctl federation rates: the rates of the last 15 minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from eventd.cli.gateway.selecting import GroupsOption
from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.terminal.output import Column, note, show_span, text

MINUTE = 12
"""Number of values in a minute."""
PAGE = 200

Row = Mapping[str, Any]


class SeriesKind(StrEnum):
    NODE = "node"
    GROUP = "group"
    LINK = "link"
    INBOUND = "inbound"
    CALLBACK = "callback"
    TOPIC = "topic"


MAIN = {
    SeriesKind.NODE: "appendedPerSecond",
    SeriesKind.GROUP: "emittedPerSecond",
    SeriesKind.LINK: "eventsPerSecond",
    SeriesKind.INBOUND: "eventsPerSecond",
    SeriesKind.CALLBACK: "eventsPerSecond",
    SeriesKind.TOPIC: "recordsPerSecond",
}
"""The values that the table shows of each kind."""


def _mean(values: Sequence[float | None], count: int) -> str:
    """Return the mean of the last `count` values that are known."""
    known = [value for value in values[-count:] if value is not None]
    return f"{sum(known) / len(known):.1f}" if known else "-"


def _main(count: int) -> Callable[[Row], str]:
    return lambda row: _mean(row[MAIN[SeriesKind(row["kind"])]], count)


def _optional(name: str, count: int) -> Callable[[Row], str]:
    return lambda row: _mean(row.get(name, ()), count)


def _lag(row: Row) -> str:
    lags = [value for value in row.get("lagSeconds", ()) if value is not None]
    return show_span(lags[-1]) if lags else "-"


RATES = (
    Column("KIND", text("kind")),
    Column("GROUP", lambda row: row.get("group") or "-"),
    Column("NAME", lambda row: row.get("node") or row.get("callback") or row.get("topic") or "-"),
    Column("NOW/S", _main(1)),
    Column("1M/S", _main(MINUTE)),
    Column("15M/S", _main(15 * MINUTE)),
    Column("RECEIVED/S", _optional("receivedPerSecond", MINUTE)),
    Column("LAG", _lag),
    Column("BYTES/S", _optional("bytesPerSecond", MINUTE), wide=True),
)


@connected
@only_calls
async def show_rates(
    session: Session,
    group: GroupsOption = "",
    kind: Annotated[SeriesKind | None, typer.Option("--kind", help="Only rates of this kind.")] = None,
) -> None:
    """Show the rates of the last 15 minutes: of the node, its groups and links, and the busiest callbacks and
    topics.

    NOW/S is the mean of the last 5 s, 1M/S that of a minute: records appended by the node, events emitted in a group,
    events acknowledged by the peer of a link, new events from a sender (inbound), events accepted by the endpoint of a
    callback, records appended to a topic.
    """
    series: list[Row] = []
    after: str | None = ""
    while after is not None:
        answer = await session.call("rates.show", group=group, kind=kind or "", limit=PAGE, after=after)
        series += answer["series"]
        after = answer["next"]
    if session.out.is_document:
        session.out.value({**answer, "series": series, "next": None})
        return
    session.out.rows(RATES, series, name=lambda row: f"{row['kind']}/{row.get('node') or row.get('topic') or '-'}")
    if session.out.is_table and not answer["complete"]:
        note("note: rates are counted by a running node; those of at least one of its processes are missing here")
