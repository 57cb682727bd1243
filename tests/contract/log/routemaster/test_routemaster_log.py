"""Claims, events, subscriptions and tokens in the log, on both databases."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from eventd.errors import Conflict, NotFound, SettingsError
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import LinkState, move_cursor, read_cursors
from eventd.log.cursors.steps import Postponement
from eventd.log.routemaster import publish, subscriptions, tokens
from eventd.log.routemaster.backlog import QueuedEvents, read_states
from eventd.log.routemaster.errors import (
    NotSubscribed,
    RmTopicNotFound,
    SubscriberNotFound,
    TokenNotFound,
    TopicClaimed,
)
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import (
    ClaimTopic,
    DeleteRmTopic,
    DeleteSubscriber,
    LeaveTopic,
    PutSubscriber,
    SubscriptionSettings,
)
from eventd.log.routemaster.surface_topic import OpenTopic, surface_topic_config
from eventd.log.routemaster.tokens import (
    CreateToken,
    DeleteExpiredTokens,
    DeleteToken,
    ImportTokens,
    NewToken,
    RotateToken,
    find_identity,
)
from eventd.log.topics.errors import Throttled, TopicFull
from eventd.log.topics.topics import PutTopic
from eventd.log.topics.write import Write
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import fetch
from eventd.store.rows.routemaster import (
    Interval,
    RmTopicRow,
    SubscriberRow,
    add_sent,
    drop_passed,
    has_passed,
    intervals_of,
    list_rm_topics,
    read_subscribers,
)
from eventd.store.rows.tokens import TokenRow, handle_of, read_tokens
from eventd.testing import NOW, ManualClock

CONFIG = surface_topic_config()
URL = "https://shop.example/1"


def unit(log: EventLog, topic: str = "orders", publisher: str = "shop--1", **given: Any) -> PublishEvent:
    event = PublishedEvent(topic, given.pop("type", "create"), given.pop("url", URL), **_texts(given))
    given.setdefault("config", CONFIG)
    return PublishEvent(event, publisher, flushes=log.flushes, random=log.chance.token(16), **given)


def _texts(given: dict[str, Any]) -> dict[str, str]:
    return {name: given.pop(name) for name in ("t", "data") if name in given}


async def emit(log: EventLog, topic: str = "orders", publisher: str = "shop--1", **given: Any) -> int:
    """The position of a new event; its seq is the same, as the log has no other topic."""
    return (await log.submit(unit(log, topic, publisher, **given))).last_seq


async def subscribe(log: EventLog, identity: str = "app--1", *topics: str, **settings: Any) -> SubscriberRow:
    wanted = SubscriptionSettings(topics, settings.pop("callback", "https://app.example/events"), **settings)
    return await log.submit(PutSubscriber(identity, wanted, config=CONFIG, random=log.chance.token(16)))


async def bodies(log: EventLog) -> list[dict[str, Any]]:
    texts = await log.database.read(fetch, "SELECT text FROM blocks ORDER BY position")
    return [json.loads(line) for (text,) in texts for line in text.splitlines()]


async def topics(log: EventLog) -> dict[str, tuple[str, int]]:
    return {row.name: (row.publisher, row.events) for row in await log.database.read(list_rm_topics)}


async def backlog(log: EventLog, identity: str = "app--1") -> QueuedEvents:
    return {state.row.identity: state.backlog for state in await log.database.read(read_states)}[identity]


async def settle(log: EventLog, position: int, identity: str = "app--1") -> None:
    await log.database.write(lambda conn: move_cursor(conn, f"callback:rm/{identity}", to=position, now=NOW))


# --- publishing ---------------------------------------------------------------------------------------------------


async def test_an_event_is_one_record_with_its_topic_and_publisher(log: EventLog) -> None:
    await emit(log, data='{"a":1.50}')
    await emit(log, type="noop", t="-1e3")
    assert await bodies(log) == [
        {"$node": "shop--1", "$tag": "orders.create", "data": {"url": URL, "t": NOW // 1000, "data": {"a": 1.5}}},
        {"$node": "shop--1", "$tag": "orders.noop", "data": {"url": URL, "t": -1000}},
    ]
    texts = "".join(text for (text,) in await log.database.read(fetch, "SELECT text FROM blocks ORDER BY position"))
    assert '"data":{"a":1.50}' in texts
    assert '"t":-1e3}' in texts
    line = await log.database.read(find_topic, "routemaster")
    assert line is not None
    assert (line.durability, line.config.discard, line.config.ttl_ms) == ("fsync", "reject", 7 * 86_400_000)


async def test_the_first_publisher_claims_and_each_event_counts(log: EventLog) -> None:
    assert await topics(log) == {}
    await emit(log)
    await emit(log)
    with pytest.raises(TopicClaimed, match="the topic orders is claimed"):
        await emit(log, publisher="other--2")
    await emit(log, "bills", "other--2")
    assert await topics(log) == {"orders": ("shop--1", 2), "bills": ("other--2", 1)}
    assert len(await bodies(log)) == 3


async def test_of_two_first_publishers_in_one_transaction_one_wins(log: EventLog) -> None:
    both = [log.submit(unit(log, publisher=name)) for name in ("one--1", "two--2")]
    done = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each).__name__ for each in done] == ["WriteResult", "TopicClaimed"]
    assert await topics(log) == {"orders": ("one--1", 1)}
    assert len(await bodies(log)) == 1


async def test_times_of_one_url_rise_within_a_transaction_and_given_ones_stay(log: EventLog) -> None:
    await asyncio.gather(*(log.submit(unit(log, **given)) for given in ({}, {}, {"t": "5"}, {"url": "https://b"}, {})))
    found = [body["data"]["t"] - NOW // 1000 for body in await bodies(log)]
    assert found == [0, 1, 5 - NOW // 1000, 0, 2]


async def test_a_repeated_key_writes_nothing_and_counts_nothing(log: EventLog) -> None:
    first = await log.submit(unit(log, key="k"))
    again = await log.submit(unit(log, key="k"))
    assert (again.last_seq, again.deduped) == (first.last_seq, True)
    assert await topics(log) == {"orders": ("shop--1", 1)}
    assert not (await log.submit(unit(log, "bills", key="k"))).deduped, "a key is that of a topic and a publisher"
    await log.submit(ClaimTopic("orders", ""))
    assert not (await log.submit(unit(log, publisher="other--2", key="k"))).deduped
    assert len(await bodies(log)) == 3


async def test_a_full_topic_refuses_and_leaves_nothing(log: EventLog) -> None:
    await log.submit(OpenTopic(surface_topic_config(cap_bytes=80), random=log.chance.token(16)))
    await emit(log)
    with pytest.raises(TopicFull):
        await emit(log, "bills")
    assert await topics(log) == {"orders": ("shop--1", 1)}


async def test_the_node_s_limit_of_bytes_counts(log: EventLog) -> None:
    with pytest.raises(Throttled, match="max_total_bytes"):
        await emit(log, max_bytes=10)
    assert await topics(log) == {}


async def test_topics_are_bounded(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "MOST_TOPICS", 2)
    await emit(log, "a")
    await subscribe(log, "app--1", "a", "b")
    with pytest.raises(Throttled, match="has 2 topics: delete some"):
        await emit(log, "c")
    with pytest.raises(Throttled, match="has 2 topics: delete some"):
        await subscribe(log, "app--1", "c")
    assert sorted(await topics(log)) == ["a", "b"]
    assert [row.topics for row in await log.database.read(read_subscribers)] == [["a", "b"]]


async def test_topics_that_only_subscriptions_name_leave_room_for_publishers(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MOST_UNCLAIMED", 2)
    await emit(log, "a")
    await subscribe(log, "app--1", "a", "b", "c")
    with pytest.raises(Throttled, match="2 topics have subscribers and no publisher"):
        await subscribe(log, "app--2", "a", "d")
    assert [row.identity for row in await log.database.read(read_subscribers)] == ["app--1"]
    await emit(log, "d")
    await subscribe(log, "app--2", "a", "d", "b")
    await emit(log, "b")  # claims it: there is room for one more
    await subscribe(log, "app--2", "e")


async def test_the_topic_follows_its_settings_and_keeps_its_records(log: EventLog) -> None:
    opened = await log.submit(OpenTopic(CONFIG, random=log.chance.token(16)))
    await emit(log)
    again = await log.submit(
        OpenTopic(surface_topic_config(cap_bytes=1 << 20, discard="old"), random=log.chance.token(16))
    )
    assert (again.id, again.head_seq) == (opened.id, 1)
    assert (again.config.cap_bytes, again.config.discard) == (1 << 20, "old")


async def test_a_queue_of_the_name_keeps_the_surface_closed(log: EventLog) -> None:
    queue = PutTopic("routemaster", TopicConfig(type="queue"), max_topics=0, random=log.chance.token(16))
    await log.submit(queue)
    with pytest.raises(SettingsError, match="is a queue"):
        await log.submit(OpenTopic(CONFIG, random=log.chance.token(16)))


# --- subscribing --------------------------------------------------------------------------------------------------


async def test_a_subscription_begins_with_what_is_published_after_it(log: EventLog) -> None:
    await emit(log)
    row = await subscribe(log, "app--1", "orders", "bills", uuid="u", timeout_ms=0)
    assert row == SubscriberRow(
        "app--1",
        "https://app.example/events",
        "u",
        0,
        100,
        created_at=NOW,
        updated_at=NOW,
        version=row.version,
        intervals=(Interval("bills", 1), Interval("orders", 1)),
    )
    assert await log.database.read(read_subscribers) == [row]
    (cursor,) = await log.database.read(read_cursors, "callback")
    assert cursor.selector_version == row.version > 1
    line = await log.database.read(find_topic, "routemaster")
    assert line is not None
    assert (
        (cursor.name, cursor.topic_id, cursor.position)
        == (row.cursor, line.id, 1)
        == ("callback:rm/app--1", line.id, 1)
    )
    assert await topics(log) == {"orders": ("shop--1", 1), "bills": ("", 0)}


async def test_the_list_is_complete_and_what_was_published_before_is_still_owed(log: EventLog) -> None:
    await subscribe(log, "app--1", "orders")
    await emit(log)
    await emit(log, "bills")
    await subscribe(log, "app--1", "bills")
    await emit(log)
    await emit(log, "bills")
    found = await log.database.read(intervals_of, "app--1")
    assert found == [Interval("bills", 2), Interval("orders", 0, 2)]
    assert await backlog(log) == QueuedEvents(2, NOW)
    await settle(log, 2)
    assert await backlog(log) == QueuedEvents(1, NOW)
    await subscribe(log, "app--1")
    assert await log.database.read(intervals_of, "app--1") == [Interval("bills", 2, 4)], "the passed one is dropped"
    await settle(log, 4)
    assert await backlog(log) == QueuedEvents()


async def test_passed_intervals_are_swept(log: EventLog) -> None:
    await subscribe(log, "app--1", "orders")
    await emit(log)
    await subscribe(log, "app--1")
    assert not await log.database.read(has_passed)
    await log.database.write(drop_passed)
    assert len(await log.database.read(intervals_of, "app--1")) == 1
    await settle(log, 1)
    assert await log.database.read(has_passed)
    await log.database.write(drop_passed)
    assert await log.database.read(intervals_of, "app--1") == []


async def test_settings_that_are_left_out_stay_but_the_uuid(log: EventLog) -> None:
    await subscribe(log, "app--1", "orders", uuid="u", timeout_ms=7, max_events=9)
    row = await subscribe(log, "app--1", "orders", callback="https://b.example")
    assert (row.callback, row.uuid, row.timeout_ms, row.max_events) == ("https://b.example", "", 7, 9)
    assert row.intervals == (Interval("orders", 0),)


async def test_events_are_held_for_a_subscriber_that_fails_for_a_week(log: EventLog) -> None:
    row = await subscribe(log, "app--1", "orders")
    (cursor,) = await log.database.read(lambda conn: read_cursors(conn, name=row.cursor))
    assert cursor.hold == 7 * 86_400 * SECOND


async def test_a_failing_subscriber_that_subscribes_again_is_tried_at_once(log: EventLog) -> None:
    row = await subscribe(log, "app--1", "orders")
    await emit(log)
    hour = NOW + 3600 * SECOND
    await log.postpone(Postponement(row.cursor, 0, LinkState.BACKING_OFF, "http_503", "answered 503", 1, NOW, hour))
    (failing,) = await log.database.read(lambda conn: read_cursors(conn, name=row.cursor))
    assert (failing.attempts, failing.retry_at) == (1, hour)
    await subscribe(log, "app--1", "orders", callback="https://app.example/elsewhere")
    (again,) = await log.database.read(lambda conn: read_cursors(conn, name=row.cursor))
    assert (again.state, again.reason, again.attempts, again.retry_at) == ("running", "", 0, None)
    assert (await backlog(log)).queued == 1, "and nothing is passed"


async def test_joining_and_leaving_without_an_event_leaves_no_interval(log: EventLog) -> None:
    for _ in range(3):
        await subscribe(log, "app--1", "orders")
        await subscribe(log, "app--1")
    assert await log.database.read(intervals_of, "app--1") == []


async def test_leaving_one_topic_has_its_reasons(log: EventLog) -> None:
    with pytest.raises(SubscriberNotFound):
        await log.submit(LeaveTopic("app--1", "orders"))
    await subscribe(log, "app--1", "orders")
    await emit(log, "bills")
    with pytest.raises(RmTopicNotFound):
        await log.submit(LeaveTopic("app--1", "none"))
    with pytest.raises(NotSubscribed):
        await log.submit(LeaveTopic("app--1", "bills"))
    await emit(log)
    await log.submit(LeaveTopic("app--1", "orders"))
    assert await log.database.read(intervals_of, "app--1") == [Interval("orders", 0, 2)]
    with pytest.raises(NotSubscribed):
        await log.submit(LeaveTopic("app--1", "orders"))


async def test_unsubscribing_drops_what_waits_and_subscribing_again_gets_nothing_old(log: EventLog) -> None:
    await subscribe(log, "app--1", "orders")
    await emit(log)
    await log.submit(DeleteSubscriber("app--1"))
    assert await log.database.read(read_cursors, "callback") == []
    assert await log.database.read(fetch, "SELECT * FROM rm_intervals") == []
    with pytest.raises(SubscriberNotFound):
        await log.submit(DeleteSubscriber("app--1"))
    await subscribe(log, "app--1", "orders")
    assert await backlog(log) == QueuedEvents()
    (cursor,) = await log.database.read(read_cursors, "callback")
    assert cursor.position == 1


async def test_a_deleted_topic_ends_its_subscriptions_and_a_new_one_of_the_name_has_none(log: EventLog) -> None:
    await subscribe(log, "app--1", "orders")
    await emit(log)
    await log.submit(DeleteRmTopic("orders", None))
    await emit(log, publisher="other--2")
    assert await topics(log) == {"orders": ("other--2", 1)}
    assert await log.database.read(intervals_of, "app--1") == [Interval("orders", 0, 1)]
    assert await backlog(log) == QueuedEvents(1, NOW)


async def test_each_change_of_the_topics_ends_what_knows_the_former_ones(log: EventLog) -> None:
    """A consumer with the intervals from before the change cannot move the cursor any more."""
    row = await subscribe(log, "app--1", "orders", "bills")
    await subscribe(log, "app--2", "bills")
    await emit(log)
    await emit(log, "bills")
    seen = [row.version]
    for change in (LeaveTopic("app--1", "orders"), DeleteRmTopic("bills", None)):
        await log.submit(change)  # type: ignore[arg-type]
        (changed, other) = await log.database.read(read_subscribers)
        (cursor, _) = await log.database.read(read_cursors, "callback")
        assert changed.version == cursor.selector_version
        seen.append(changed.version)
    assert seen == sorted(set(seen))
    assert other.version > seen[0]
    same = await subscribe(log, "app--1", callback="https://b.example")
    assert same.version == seen[-1], "no topic has changed"


async def test_only_publishers_delete_and_of_an_unclaimed_topic_its_subscribers(log: EventLog) -> None:
    await emit(log)
    await subscribe(log, "app--1", "orders", "bills")
    await subscribe(log, "app--2")
    for topic, identity in (("orders", "app--1"), ("bills", "app--2"), ("bills", "shop--1")):
        with pytest.raises(TopicClaimed):
            await log.submit(DeleteRmTopic(topic, identity))
    with pytest.raises(RmTopicNotFound):
        await log.submit(DeleteRmTopic("none", "app--1"))
    await log.submit(DeleteRmTopic("orders", "shop--1"))
    await log.submit(DeleteRmTopic("bills", "app--1"))
    assert await topics(log) == {}


async def test_a_claim_is_handed_over_and_released(log: EventLog) -> None:
    await emit(log)
    assert (await log.submit(ClaimTopic("orders", "new--1"))).publisher == "new--1"
    await emit(log, publisher="new--1")
    assert (await log.submit(ClaimTopic("orders", ""))).publisher == ""
    await emit(log, publisher="third--1")
    assert await topics(log) == {"orders": ("third--1", 3)}
    with pytest.raises(RmTopicNotFound):
        await log.submit(ClaimTopic("none", ""))


async def test_intervals_of_a_subscriber_are_bounded(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_INTERVALS", 2)
    await subscribe(log, "app--1", "a", "b")
    await emit(log, "a")
    with pytest.raises(Throttled, match="at most 2 topics"):
        await subscribe(log, "app--1", "c")
    assert [row.topics for row in await log.database.read(read_subscribers)] == [["a", "b"]]
    await settle(log, 1)
    await subscribe(log, "app--1")
    await subscribe(log, "app--1", "c")


async def test_the_backlog_is_exact_over_blocks_of_several_topics(log: EventLog, clock: ManualClock) -> None:
    await subscribe(log, "app--1", "a", "b")
    await subscribe(log, "app--2", "b")
    await asyncio.gather(*(emit(log, topic) for topic in "abcab"))  # one block
    clock.advance(5)
    await asyncio.gather(*(emit(log, topic) for topic in "ca"))
    await emit(log, "b")
    assert await backlog(log) == QueuedEvents(6, NOW)
    assert await backlog(log, "app--2") == QueuedEvents(3, NOW)
    for position, left in ((1, 5), (2, 4), (3, 4), (5, 2), (7, 1), (8, 0)):
        await settle(log, position)
        assert (await backlog(log)).queued == left, position
    await settle(log, 5)
    assert await backlog(log) == QueuedEvents(2, NOW + 5 * SECOND)
    await log.database.write(lambda conn: add_sent(conn, "app--2", 3))
    assert [row.sent for row in await log.database.read(read_subscribers)] == [0, 3]


async def test_a_bounded_count_reads_the_newest_blocks_and_says_for_whom_it_is_not_exact(log: EventLog) -> None:
    for identity in ("behind--1", "app--1"):
        await subscribe(log, identity, "orders")
    for _ in range(10):
        await emit(log)
    await settle(log, 8)

    async def counted(blocks: int) -> dict[str, tuple[int, bool]]:
        states = await log.database.read(lambda conn: read_states(conn, most_blocks=blocks))
        return {state.row.identity: (state.backlog.queued, state.backlog.exact) for state in states}

    assert await counted(10) == {"app--1": (2, True), "behind--1": (10, True)}
    assert await counted(9) == {"app--1": (2, True), "behind--1": (9, False)}
    assert await counted(1) == {"app--1": (1, False), "behind--1": (1, False)}
    await settle(log, 10)
    assert await counted(1) == {"app--1": (0, True), "behind--1": (1, False)}


async def test_more_tags_than_a_block_lists_are_counted_by_their_lines(log: EventLog) -> None:
    await subscribe(log, "app--1", "t_c")
    names = [f"t_{letter}" for letter in "abcdefghijklmnopqrstu"]
    await asyncio.gather(*(emit(log, name) for name in [*names, "t_c"]))
    assert await backlog(log) == QueuedEvents(2, NOW)


async def test_every_change_of_a_subscription_moves_the_version_that_other_processes_look_at(log: EventLog) -> None:
    async def version() -> int:
        return (await log.database.read(read_head)).topics_version

    await emit(log)
    seen = [await version()]
    for change in (
        PutSubscriber("app--1", SubscriptionSettings(("orders",), URL), config=CONFIG, random=b""),
        LeaveTopic("app--1", "orders"),
        DeleteRmTopic("orders", None),
        DeleteSubscriber("app--1"),
        CreateToken(NewToken("a", "a--1")),
        DeleteToken("a--1"),
    ):
        await log.submit(change)  # type: ignore[arg-type]
        seen.append(await version())
    assert seen == sorted(set(seen))


# --- tokens -------------------------------------------------------------------------------------------------------


async def test_of_a_token_only_its_digest_is_kept(log: EventLog) -> None:
    row = await log.submit(CreateToken(NewToken("shop", "shop--secret")))
    assert row.handle == row.identity == handle_of("shop", "shop--secret")
    assert row.handle.startswith("shop--")
    assert len(row.handle) == len("shop--") + 12
    assert "secret" not in str(await log.database.read(fetch, "SELECT * FROM api_keys"))


async def test_a_known_token_gets_the_name_and_keeps_its_handle(log: EventLog) -> None:
    first = await log.submit(CreateToken(NewToken("shop", "t")))
    again = await log.submit(CreateToken(NewToken("store", "t")))
    assert (again.label, again.handle) == ("store", first.handle)
    assert len(await log.database.read(read_tokens)) == 1


async def test_importing_is_idempotent(log: EventLog) -> None:
    wanted = [NewToken("shop", "shop--1"), NewToken("app", "app--2")]
    assert await log.submit(ImportTokens(wanted)) == 2
    await log.submit(CreateToken(NewToken("renamed", "shop--1")))
    assert await log.submit(ImportTokens(wanted)) == 0
    assert sorted(row.label for row in await log.database.read(read_tokens)) == ["app", "renamed"]


async def test_a_rotated_client_keeps_its_identity_and_the_last_token_takes_the_subscription_along(
    log: EventLog, clock: ManualClock
) -> None:
    old = await log.submit(CreateToken(NewToken("app", "app--old")))
    await subscribe(log, old.identity, "orders")
    new = await log.submit(RotateToken(old.handle, "app--new", 10 * SECOND))
    assert (new.identity, new.label, new.expires_at) == (old.identity, "app", None)
    assert new.handle != old.handle
    ends = {row.handle: row.expires_at for row in await log.database.read(read_tokens)}
    assert ends == {old.handle: NOW + 10 * SECOND, new.handle: None}
    assert await log.submit(DeleteToken("app--new")) == new
    assert len(await log.database.read(read_subscribers)) == 1, "the old token is valid for 10 s"
    newer = await log.submit(RotateToken("app--old", "app--newer", 0))
    clock.advance(11)
    assert await log.submit(ImportTokens([NewToken("app", "app--old")])) == 0, "an expired token stays expired"
    assert await log.submit(DeleteToken(newer.handle)) is not None
    assert await log.database.read(read_subscribers) == []
    assert await log.database.read(read_cursors, "callback") == []
    assert await log.database.read(read_tokens) == []
    assert await log.submit(DeleteToken("app--old")) is None
    with pytest.raises(TokenNotFound):
        await log.submit(RotateToken("app--old", "x", 0))


async def test_of_tokens_that_had_expired_those_that_are_valid_again_stay(log: EventLog) -> None:
    made = await log.submit(CreateToken(NewToken("app", "app--1")))
    await subscribe(log, made.identity, "orders")
    await log.submit(DeleteExpiredTokens([made.handle, "deleted-meanwhile"]))
    assert await log.database.read(read_tokens) == [made]
    assert [row.identity for row in await log.database.read(read_subscribers)] == [made.identity]


async def test_a_deleted_token_leaves_its_claims(log: EventLog) -> None:
    row = await log.submit(CreateToken(NewToken("shop", "shop--1")))
    await emit(log, publisher=row.identity)
    await log.submit(DeleteToken(row.handle))
    assert await topics(log) == {"orders": (row.identity, 1)}


async def test_tokens_are_bounded(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 1)
    await log.submit(CreateToken(NewToken("a", "a")))
    with pytest.raises(Conflict, match="there are 1 tokens already"):
        await log.submit(CreateToken(NewToken("b", "b")))


async def test_a_client_is_found_by_its_name_unless_several_have_it(log: EventLog) -> None:
    one: TokenRow = await log.submit(CreateToken(NewToken("app", "app--1")))
    assert await log.database.read(find_identity, "app") == one.identity
    two = await log.submit(CreateToken(NewToken("app", "app--2")))
    assert await log.database.read(find_identity, two.handle) == two.identity
    with pytest.raises(Conflict, match="several clients have the name 'app'") as error:
        await log.database.read(find_identity, "app")
    assert one.handle in error.value.hint
    with pytest.raises(NotFound, match="no client has the name or handle 'none'"):
        await log.database.read(find_identity, "none")


def test_a_topic_without_a_publisher_is_unclaimed() -> None:
    publish.require_claim(None, "a")
    publish.require_claim(RmTopicRow("a"), "a")


async def test_what_v0_writes_shares_the_transaction(log: EventLog) -> None:
    """A unit of another topic between two events: their positions are consecutive all the same."""
    draft = PublishedEvent("x", "create", URL).draft("n", 1)
    other = Write("other", draft, flushes=log.flushes, random=log.chance.token(16))
    done = await asyncio.gather(log.submit(unit(log)), log.submit(other), log.submit(unit(log, "bills")))
    assert [each.last_seq for each in done] == [1, 1, 2]
