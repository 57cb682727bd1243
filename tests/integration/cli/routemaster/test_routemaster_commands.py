"""routerctl routemaster: topics, subscribers, claims and tokens, on the database or over the API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

from eventd.log.core.eventlog import EventLog
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.tokens import handle_of
from tests.integration.cli.conftest import Control


def fill(url: str, publisher: str, subscriber: str) -> None:
    """Publish an event that waits for a subscriber."""

    async def write(log: EventLog) -> None:
        wanted = SubscriptionSettings(("orders", "bills"), "https://app.example/", "secret")
        await log.submit(PutSubscriber(subscriber, wanted, config=surface_topic_config(), random=bytes(16)))
        event = PublishedEvent("orders", "create", "https://shop.example/1")
        await log.submit(
            PublishEvent(event, publisher, flushes=log.flushes, config=surface_topic_config(), random=bytes(16))
        )

    asyncio.run(_with_log(url, write))


async def _with_log(url: str, use: Callable[[EventLog], Awaitable[None]]) -> None:
    with closing(Database(url)) as database:
        log = await EventLog.open(database, SystemClock())
        await use(log)
        await log.close()


def test_a_token_is_printed_alone_and_listed_without_it(control: Control, migrated_sqlite_url: str) -> None:
    at = ("--database", migrated_sqlite_url)
    made = control("routemaster", "token", "create", "shop", *at)
    (token,) = made.lines
    handle = handle_of("shop", token)
    assert made.err == f"note: this is the token {handle}; it cannot be shown again\n"
    listed = control("routemaster", "token", "list", *at)
    assert listed.lines[0].split() == ["HANDLE", "NAME", "STATE", "CREATED", "EXPIRES"]
    assert listed.lines[1].split()[:3] == [handle, "shop", "active"]
    assert token not in control("routemaster", "token", "list", "-o", "json", *at).out
    rotated = control("routemaster", "token", "rotate", handle, "--grace", "5m", "-o", "json", *at).json
    assert (rotated["identity"], rotated["name"]) == (handle, "shop")
    assert (
        control("routemaster", "token", "revoke", rotated["handle"], *at).out == f"token/{rotated['handle']} revoked\n"
    )
    assert control("routemaster", "token", "list", "-o", "name", *at).lines == [handle]
    unknown = control("routemaster", "token", "revoke", "none", *at, code=3).err
    assert "no such token (name it by its handle, which" in unknown
    refused = control("routemaster", "token", "create", "x", "-o", "name", *at, code=2).err
    assert "-o name would lose the token" in refused


def test_topics_subscribers_and_claims(control: Control, migrated_sqlite_url: str) -> None:
    at = ("--database", migrated_sqlite_url)
    token = control("routemaster", "token", "create", "shop", *at).lines[0]
    handle = handle_of("shop", token)
    fill(migrated_sqlite_url, "old--1", "app--1")
    topics = control("routemaster", "topics", *at).lines
    assert [line.split() for line in topics] == [
        ["NAME", "PUBLISHER", "EVENTS", "SUBSCRIBERS"],
        ["bills", "-", "0", "1"],
        ["orders", "old--1", "1", "1"],
    ]
    shown = control("routemaster", "subscribers", "-o", "wide", *at)
    assert shown.lines[1].split()[:5] == ["app--1", "https://app.example/", "bills,orders", "0", "1"]
    assert "secret" not in shown.out
    assert (
        control("routemaster", "topic", "claim", "orders", "--to", "shop", *at).out
        == f"topic/orders claimed by {handle}\n"
    )
    assert control("routemaster", "topic", "claim", "orders", "--release", *at).out == "topic/orders released\n"
    for wrong in ((), ("--to", "shop", "--release")):
        told = control("routemaster", "topic", "claim", "orders", *wrong, *at, code=2).err
        assert "give either --to NAME or --release" in told
    assert "has no topic 'none'" in control("routemaster", "topic", "claim", "none", "--release", *at, code=3).err


def test_over_the_api_it_is_the_same(routerctl: Control) -> None:
    token = routerctl("routemaster", "token", "create", "shop").lines[0]
    (row,) = routerctl("routemaster", "token", "list", "-o", "json").json
    assert row["handle"] == handle_of("shop", token)
    assert routerctl("routemaster", "topics", "-o", "json").json == []
    assert routerctl("routemaster", "subscribers", "-o", "json").json == []
