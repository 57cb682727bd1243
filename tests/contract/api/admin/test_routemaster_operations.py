"""The operations on the Routemaster surface: what they show, and what they change. On both databases."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import Cursor, read_cursor
from eventd.log.cursors.selections import read_selections
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import DeleteSubscriber, PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.node.callbacks import CallbackPurpose, purposes_of_subscribers
from eventd.resources.subscriber_configuration import SubscriberLimits
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import CALLBACK
from eventd.store.rows.routemaster import cursor_of, read_subscribers, signing_of
from eventd.store.rows.tokens import handle_of
from eventd.testing import ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite


async def ask(log: EventLog, verb: str, /, **params: Any) -> Any:
    return await operations.run(Services(log), f"routemaster.{verb}", **params)


async def publish(log: EventLog, publisher: str) -> None:
    event = PublishedEvent("orders", "create", "https://a")
    await log.submit(
        PublishEvent(event, publisher, flushes=log.flushes, config=surface_topic_config(), random=bytes(16))
    )


async def subscribe(log: EventLog, identity: str, uuid: str = "secret") -> None:
    wanted = SubscriptionSettings(("orders",), "https://me:pw@app.example/", uuid)
    await log.submit(PutSubscriber(identity, wanted, config=surface_topic_config(), random=bytes(16)))


@on_sqlite
async def test_topics_and_subscribers_are_listed_without_a_secret(log: EventLog) -> None:
    assert await ask(log, "topics") == {"topics": []}
    assert await ask(log, "subscribers") == {"subscribers": []}
    await subscribe(log, "app--1")
    await subscribe(log, "app--2", "")
    await publish(log, "shop--1")
    (topic,) = (await ask(log, "topics"))["topics"]
    assert topic == {
        "name": "orders",
        "publisher": "shop--1",
        "events": 1,
        "subscribers": 2,
        "createdAt": "2026-11-20T12:00:00Z",
    }
    first, second = (await ask(log, "subscribers"))["subscribers"]
    assert first == {
        "subscriber": "app--1",
        "callback": "https://app.example/",
        "uuid": "set",
        "keyIds": [],
        "timeoutMs": 500,
        "maxEvents": 100,
        "topics": ["orders"],
        "sent": 0,
        "queued": 1,
        "oldestAt": "2026-11-20T12:00:00Z",
        "cursor": "callback:rm/app--1",
        "createdAt": "2026-11-20T12:00:00Z",
        "updatedAt": "2026-11-20T12:00:00Z",
    }
    assert second["uuid"] == "not set"


@on_sqlite
async def test_a_token_is_shown_once_and_listed_by_its_handle(log: EventLog) -> None:
    made = await ask(log, "create_token", name="shop")
    token = made.pop("token")
    assert token.startswith("shop--")
    assert (await ask(log, "tokens"))["tokens"] == [made]
    assert (made["handle"], made["identity"], made["state"]) == (handle_of("shop", token),) * 2 + ("active",)
    assert (await operations.run(Services(log), "keys.list"))["keys"] == []
    for name in ("", "Shop", "a" * 31, "a b"):
        with pytest.raises(Invalid, match="cannot be the name of a token"):
            await ask(log, "create_token", name=name)


@on_sqlite
async def test_a_rotated_token_has_a_successor_of_its_identity(log: EventLog, clock: ManualClock) -> None:
    old = await ask(log, "create_token", name="shop")
    new = await ask(log, "rotate_token", handle=old["handle"], grace="10s")
    assert (new["identity"], new["name"], new["state"]) == (old["identity"], "shop", "active")
    assert new["token"] != old["token"]
    clock.advance(10)
    states = {row["handle"]: row["state"] for row in (await ask(log, "tokens"))["tokens"]}
    assert states == {old["handle"]: "expired", new["handle"]: "active"}
    for grace in ("soon", "-1s"):
        with pytest.raises(Invalid, match="grace: "):
            await ask(log, "rotate_token", handle=new["handle"], grace=grace)
    with pytest.raises(NotFound, match="no such token"):
        await ask(log, "rotate_token", handle="none")


@on_sqlite
async def test_a_revoked_token_takes_the_subscription_along(log: EventLog) -> None:
    made = await ask(log, "create_token", name="app")
    await subscribe(log, made["identity"])
    gone = await ask(log, "revoke_token", handle=made["handle"])
    assert (gone["handle"], gone["state"]) == (made["handle"], "revoked")
    assert await ask(log, "subscribers") == {"subscribers": []}
    with pytest.raises(NotFound, match="no such token") as error:
        await ask(log, "revoke_token", handle=made["token"])
    assert made["token"] not in str(error.value)


@on_sqlite
async def test_a_claim_is_handed_over_by_name_or_handle_and_released(log: EventLog) -> None:
    one, two = [await ask(log, "create_token", name=name) for name in ("one", "two")]
    await publish(log, one["identity"])
    assert (await ask(log, "claim", name="orders", to="two"))["publisher"] == two["identity"]
    assert (await ask(log, "claim", name="orders", to=one["handle"]))["publisher"] == one["identity"]
    assert (await ask(log, "claim", name="orders", release=True))["publisher"] is None
    for params in ({}, {"to": "one", "release": True}):
        with pytest.raises(Invalid, match="name the new publisher, or set release"):
            await ask(log, "claim", name="orders", **params)
    for name in ("none", "No name"):
        with pytest.raises(NotFound, match="the Routemaster surface has no topic"):
            await ask(log, "claim", name=name, release=True)
    with pytest.raises(NotFound, match="no client has the name"):
        await ask(log, "claim", name="orders", to="none")
    await ask(log, "create_token", name="two")
    with pytest.raises(Conflict, match="several clients have the name 'two'"):
        await ask(log, "claim", name="orders", to="two")


@on_sqlite
async def test_an_operator_has_requests_signed_and_a_subscription_anew_changes_nothing(log: EventLog) -> None:
    token = (await ask(log, "create_token", name="app"))["handle"]
    await subscribe(log, token)
    keys = ["new=/etc/app-new.key", "old=credential:app"]
    assert await ask(log, "sign", client="app", keys=keys) == {"subscriber": token, "keyIds": ["new", "old"]}
    await log.submit(DeleteSubscriber(token))
    await subscribe(log, token)
    assert (await ask(log, "subscribers"))["subscribers"][0]["keyIds"] == ["new", "old"]
    (row,) = await log.database.read(read_subscribers)
    assert row.keys == (("new", "/etc/app-new.key"), ("old", "credential:app"))
    assert (await ask(log, "sign", client=token))["keyIds"] == []
    assert (await ask(log, "subscribers"))["subscribers"][0]["keyIds"] == []


@pytest.mark.parametrize("entry", ["whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "a=", "=/a", "a b=/a", "a=relative"])
@on_sqlite
async def test_a_key_that_is_none_is_refused_without_showing_it(log: EventLog, entry: str) -> None:
    await ask(log, "create_token", name="app")
    with pytest.raises(Invalid, match=r"keys\[1\]: ") as refused:
        await ask(log, "sign", client="app", keys=["b=/b", entry])
    assert "whsec" not in str(refused.value)
    with pytest.raises(Invalid, match="two keys have the same id"):
        await ask(log, "sign", client="app", keys=["b=/b", "b=/c"])
    with pytest.raises(NotFound, match="no client has the name or handle 'other'"):
        await ask(log, "sign", client="other", keys=["b=/b"])


@on_sqlite
async def test_the_keys_of_a_client_end_with_its_last_token(log: EventLog) -> None:
    token = (await ask(log, "create_token", name="app"))["handle"]
    await ask(log, "sign", client="app", keys=["b=/b"])
    await ask(log, "revoke_token", handle=token)
    assert await log.database.read(signing_of, token) == ()


@pytest.mark.parametrize("latest", [False, True])
@on_sqlite
async def test_a_subscriber_is_served_after_a_reset_and_after_its_next_change(log: EventLog, latest: bool) -> None:
    async def serving() -> tuple[CallbackPurpose, Cursor]:
        rows = await log.database.read(read_subscribers)
        (purpose,) = purposes_of_subscribers(rows, SubscriberLimits()).values()
        return purpose, await log.database.read(read_cursor, cursor_of("app--1"))

    await subscribe(log, "app--1")
    for _ in range(3):
        await publish(log, "shop--1")
        before, _ = await serving()
        await operations.run(Services(log), "callbacks.reset", callback="rm/app--1", latest=latest)
        purpose, cursor = await serving()
        assert purpose.is_for(cursor)
        assert not before.is_for(cursor)  # requests from the old position end
        assert cursor.position == (cursor.started_after if not latest else await log.database.read(last_position))
    assert await log.database.read(read_selections, CALLBACK) == {}
    wanted = SubscriptionSettings(("orders", "users"), "https://app.example/")
    await log.submit(PutSubscriber("app--1", wanted, config=surface_topic_config(), random=bytes(16)))
    changed, cursor = await serving()
    assert changed.is_for(cursor)
    assert not purpose.is_for(cursor)


def last_position(conn: Connection) -> int:
    return read_head(conn).last
