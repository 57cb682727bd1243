"""The tables of `routerctl top` for links, topics, queues and callbacks: rows, columns, and order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.cli.gateway.selecting import all_groups
from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import Column, moment, span, text

SECONDS: Final = 60
"""Seconds over which rates are read."""
_PAGE: Final = 200
_FAILING: Final = ("backing-off", "blocked", "failed")

Row = dict[str, Any]


class Measure(NamedTuple):
    """A column, the letter that sorts by it, and the value that it sorts by; the largest first if `largest_first`."""

    letter: str
    column: Column
    order: Callable[[Row], Any]
    largest_first: bool = False


class View(NamedTuple):
    """One table: its columns, the one that it is sorted by at first, and which rows are failing."""

    name: str
    measures: Sequence[Measure]
    first: str
    is_failing: Callable[[Row], bool]
    title: Callable[[Row], str]

    @property
    def columns(self) -> list[Column]:
        return [measure.column for measure in self.measures]

    def measure(self, letter: str) -> Measure | None:
        """Return the column with this letter; None if there is none."""
        return next((each for each in self.measures if each.letter == letter), None)

    def arrange(self, rows: Iterable[Row], *, sort: str, reverse: bool, failing: bool, part: str) -> list[Row]:
        """Return the rows that are wanted, in order: only failing ones, only those whose name contains `part`."""
        measure = self.measure(sort) or self.measure(self.first)
        assert measure is not None
        wanted = [
            row for row in rows if (not failing or self.is_failing(row)) and part.lower() in self.title(row).lower()
        ]
        wanted.sort(key=self.title)
        wanted.sort(key=measure.order, reverse=measure.largest_first is not reverse)
        return wanted


def _number(name: str) -> Callable[[Row], float]:
    return lambda row: float(row[name] or 0)


def _word(name: str) -> Callable[[Row], str]:
    return lambda row: str(row[name] or "")


def _rate(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: "-" if row[name] is None else f"{row[name]:.1f}"


def _texts(letter: str, header: str, name: str) -> Measure:
    return Measure(letter, Column(header, text(name)), _word(name))


def _counts(letter: str, header: str, name: str) -> Measure:
    return Measure(letter, Column(header, lambda row: str(row[name])), _number(name), largest_first=True)


def _rates(letter: str, header: str, name: str) -> Measure:
    return Measure(letter, Column(header, _rate(name)), _number(name), largest_first=True)


def _spans(letter: str, header: str, name: str) -> Measure:
    return Measure(letter, Column(header, span(name)), _number(name), largest_first=True)


async def _read_rates(session: Session, kind: str, group: str, column: str) -> dict[tuple[str, str], Row]:
    """Return the last rate, and the mean of a minute, by group and by node, callback or topic."""
    found: dict[tuple[str, str], Row] = {}
    after: str | None = ""
    while after is not None:
        answer = await session.call("rates.show", group=group, kind=kind, seconds=SECONDS, limit=_PAGE, after=after)
        for series in answer["series"]:
            name = series.get("node") or series.get("callback") or series.get("topic") or ""
            values = series[column]
            known = [value for value in values if value is not None]
            found[series.get("group", ""), name] = {
                "perSecond": values[-1] if values else None,
                "perSecondOfMinute": sum(known) / len(known) if known else None,
            }
        after = answer["next"]
    return found


_NO_RATES: Final[Row] = {"perSecond": None, "perSecondOfMinute": None}


async def _read_links(session: Session, group: str) -> list[Row]:
    rates = await _read_rates(session, "link", group, "eventsPerSecond")
    rows: list[Row] = []
    for name in await all_groups(session, group):
        answer = await session.call("links.status", group=name)
        for link in answer["outbound"]:
            members = ("group", "peer", "state", "reason", "lagEvents", "lagSeconds", "deadLetters", "lastError")
            rows.append({each: link[each] for each in members} | rates.get((name, link["peer"]), _NO_RATES))
    return rows


async def _read_topics(session: Session) -> list[Row]:
    rates = await _read_rates(session, "topic", "", "recordsPerSecond")
    return [{"topic": name, **values} for (_, name), values in rates.items()]


async def _read_queues(session: Session) -> list[Row]:
    rates = await _read_rates(session, "topic", "", "recordsPerSecond")
    rows: list[Row] = []
    after: str | None = ""
    while after is not None:
        answer = await session.call("queues.list", limit=_PAGE, after=after)
        for queue in answer["queues"]:
            oldest = queue["oldestReady"]
            members = ("queue", "ready", "leased", "delayed", "deadLettered")
            rows.append(
                {each: queue[each] for each in members}
                | {"oldestReadyAt": oldest["writtenAt"] if oldest else None}
                | rates.get(("", queue["queue"]), _NO_RATES)
            )
        after = answer["next"]
    return rows


async def _read_callbacks(session: Session, group: str) -> list[Row]:
    rates = await _read_rates(session, "callback", "", "eventsPerSecond")
    by_name = {name: values for (_, name), values in rates.items()}
    answer = await session.call("callbacks.list", group=group)
    members = ("callback", "state", "reason", "waitingEvents", "waitingSeconds", "deadLetters", "lastError")
    return [
        {each: one[each] for each in members} | by_name.get(one["callback"], _NO_RATES) for one in answer["callbacks"]
    ]


def _age_order(row: Row) -> str:
    """Return the value by which queues are sorted by their oldest ready job, queues without one last."""
    return row["oldestReadyAt"] or "9"


def _is_down(row: Row) -> bool:
    return row["state"] in _FAILING


LINKS: Final = View(
    "links",
    (
        _texts("g", "GROUP", "group"),
        _texts("p", "PEER", "peer"),
        _texts("s", "STATE", "state"),
        _rates("n", "NOW/S", "perSecond"),
        _rates("m", "1M/S", "perSecondOfMinute"),
        _counts("w", "WAITING", "lagEvents"),
        _spans("l", "LAG", "lagSeconds"),
        _counts("d", "DEAD", "deadLetters"),
        _texts("e", "LAST_ERROR", "lastError"),
    ),
    "l",
    _is_down,
    lambda row: f"{row['group']}/{row['peer']}",
)
TOPICS: Final = View(
    "topics",
    (
        _texts("t", "TOPIC", "topic"),
        _rates("n", "NOW/S", "perSecond"),
        _rates("m", "1M/S", "perSecondOfMinute"),
    ),
    "n",
    lambda row: False,
    lambda row: str(row["topic"]),
)
QUEUES: Final = View(
    "queues",
    (
        _texts("t", "QUEUE", "queue"),
        _rates("n", "NOW/S", "perSecond"),
        _counts("r", "READY", "ready"),
        _counts("l", "LEASED", "leased"),
        _counts("y", "DELAYED", "delayed"),
        _counts("d", "DEAD", "deadLettered"),
        Measure("o", Column("OLDEST_READY", moment("oldestReadyAt")), _age_order),
    ),
    "r",
    lambda row: bool(row["deadLettered"]),
    lambda row: str(row["queue"]),
)
CALLBACKS: Final = View(
    "callbacks",
    (
        _texts("c", "NAME", "callback"),
        _texts("s", "STATE", "state"),
        _rates("n", "NOW/S", "perSecond"),
        _rates("m", "1M/S", "perSecondOfMinute"),
        _counts("w", "WAITING", "waitingEvents"),
        _spans("l", "LAG", "waitingSeconds"),
        _counts("d", "DEAD", "deadLetters"),
        _texts("e", "LAST_ERROR", "lastError"),
    ),
    "l",
    _is_down,
    lambda row: str(row["callback"]),
)
VIEWS: Final = {view.name: view for view in (LINKS, TOPICS, QUEUES, CALLBACKS)}


async def read_rows(session: Session, view: View, group: str) -> list[Row]:
    """Return all rows of a table; of links and callbacks only those of `group`, unless it is empty."""
    if view is LINKS:
        return await _read_links(session, group)
    if view is TOPICS:
        return await _read_topics(session)
    if view is QUEUES:
        return await _read_queues(session)
    return await _read_callbacks(session, group)
