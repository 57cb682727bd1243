"""The rates of the last 15 minutes: of the node, its groups, links and senders, the busiest callbacks and topics."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

import msgspec
from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Invalid
from eventd.log.core.topic_row import read_topic, read_topic_names
from eventd.observe.rates import CALLBACK, COLUMNS, INTERVAL_SECONDS, POINTS, TOPIC, RateFilter, RatePage, SeriesKey
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection

LONGEST_SECONDS = POINTS * INTERVAL_SECONDS


class ShowRates(Params):
    """Which rates to show; all if nothing is given."""

    kind: Literal["", "node", "group", "link", "inbound", "callback", "topic"] = Field(
        default="", description="Only series of this kind: node, group, link, inbound, callback or topic."
    )
    group: str = Field(default="", description="Only of this group: its own, and those of its links and senders.")
    link: str = Field(default="", max_length=253, description="Only of links to and from this node.")
    callback: str = Field(default="", max_length=253, description="Only of this callback.")
    topic: str = Field(default="", max_length=512, description="Only of this topic of records.")
    seconds: int = Field(
        default=LONGEST_SECONDS,
        ge=INTERVAL_SECONDS,
        le=LONGEST_SECONDS,
        description="How far back, in seconds; a value for every 5 s.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of series of the page.")
    after: str = Field(default="", max_length=2000, description="Continue after this token, the `next` of a page.")


async def show_rates(services: Services, params: ShowRates) -> dict[str, Any]:
    after = _read_token(params.after)
    topic = (await services.database.read(read_topic, params.topic)).id if params.topic else 0
    question = RateFilter(
        kind=params.kind or (TOPIC if topic else ""),
        group=params.group,
        node=params.link,
        callback=params.callback,
        topic=topic,
        ticks=params.seconds // INTERVAL_SECONDS,
        after=after,
        limit=params.limit + 1,
    )
    page, complete = await services.rates(question)
    shown = page.series[: params.limit]
    names = await services.database.read(_read_names, [key for key, _ in shown])
    return {
        "at": show_time(page.ticks[-1] * INTERVAL_SECONDS * SECOND) if page.ticks else None,
        "intervalSeconds": INTERVAL_SECONDS,
        "complete": complete,
        "series": [_show(key, columns, page, names) for key, columns in shown],
        "next": _write_token(shown[-1][0]) if len(page.series) > params.limit else None,
    }


def _show(key: SeriesKey, columns: list[list[float | None]], page: RatePage, names: dict[int, str]) -> dict[str, Any]:
    """Return a series as JSON; ticks at which no sample was taken are None in its columns."""
    every = range(page.ticks[0], page.ticks[-1] + 1) if page.ticks else range(0)
    places = {tick: at for at, tick in enumerate(page.ticks)}
    about: dict[str, Any] = {"kind": key.kind}
    about |= {"group": key.group} if key.group else {}
    about |= {"callback" if key.kind == CALLBACK else "node": key.node} if key.node else {}
    about |= {"topic": names.get(key.topic, "")} if key.topic else {}
    values = {
        name: [column[places[tick]] if tick in places else None for tick in every]
        for name, column in zip(COLUMNS[key.kind], columns, strict=True)
    }
    return about | values


def _read_names(conn: Connection, keys: list[SeriesKey]) -> dict[int, str]:
    return read_topic_names(conn, [key.topic for key in keys if key.topic])


def _write_token(key: SeriesKey) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def _read_token(token: str) -> SeriesKey | None:
    if not token:
        return None
    try:
        key: SeriesKey = msgspec.json.decode(base64.b64decode(token, b"-_", validate=True), type=SeriesKey)
        return key
    except (binascii.Error, ValueError, RecursionError):
        raise Invalid(f"{token[:60]!r} is not a token of this list", hint="use `next` of an answer") from None
