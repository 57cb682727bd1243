"""Topics and routers that resources declare: created, configured, adopted and deleted with them, and only with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.api.framework.limits import Limits
from eventd.api.framework.operations import Services
from eventd.errors import Conflict, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.routers.declare import DeleteRouter
from eventd.log.topics.errors import Incompatible
from eventd.log.topics.router_rows import read_router
from eventd.log.topics.topics import DeleteTopic, PatchTopic, PutTopic
from eventd.resources.reading.problems import InvalidResources
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.store.rows.registry import put_resource, read_resources
from tests.support import operations
from tests.support.declared import callback, declare, group
from tests.support.fresh import on_sqlite
from tests.support.topics import Topics


def topic(name: str, spec: str = "{}") -> str:
    return f"apiVersion: topic.routerd.net/v1alpha1\nkind: Topic\nmetadata: {{name: '{name}'}}\nspec: {spec}\n"


def router(source: str, dest: str, more: str = "") -> str:
    spec = f"{{source: '{source}', dest: '{dest}'{more}}}"
    return topic(f"{source}->{dest}", spec).replace("kind: Topic", "kind: TopicRouter")


class Declaring:
    """Applies and deletes resources as requests do."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.services = Services(log)

    async def ask(self, operation: str, **params: Any) -> Any:
        return await operations.run(self.services, f"resources.{operation}", **params)

    async def changes(self, operation: str, *texts: str, **how: bool) -> list[dict[str, Any]]:
        sources = [{"name": "a.yaml", "text": "\n---\n".join(texts) or "# none"}]
        answer = await self.ask(operation, sources=sources, **how)
        found: list[dict[str, Any]] = answer["changes"]
        return found

    async def apply(self, *texts: str, **how: bool) -> list[str]:
        return [f"{one['name']} {one['action']}" for one in await self.changes("apply", *texts, **how)]

    async def config(self, name: str) -> TopicConfig | None:
        line = await self.log.database.read(find_topic, name)
        return None if line is None else line.config


@pytest.fixture
def declaring(log: EventLog) -> Declaring:
    return Declaring(log)


@pytest.fixture
def topics(log: EventLog) -> Topics:
    return Topics(log)


@on_sqlite
async def test_topics_and_routers_are_made_and_configured_with_their_resources(declaring: Declaring) -> None:
    ends = (topic("orders", "{ttlMs: 10m, capRecords: 5}"), topic("jobs", "{type: queue, deadLetter: lost}"))
    copies = router("orders", "audit", ", filter: 'a.*', fanIn: true")
    assert await declaring.apply(*ends, copies, dry_run=True) == [
        "orders created",
        "jobs created",
        "orders->audit created",
    ]
    assert await declaring.config("orders") is None
    assert await declaring.apply(*ends, copies) == ["orders created", "jobs created", "orders->audit created"]
    assert await declaring.config("orders") == TopicConfig(ttl_ms=600_000, cap_records=5).resolved()
    assert await declaring.config("jobs") == TopicConfig(type="queue", dead_letter="lost").resolved()
    line = await declaring.log.database.read(read_router, "orders->audit")
    assert line is not None
    assert (line.source, line.dest, line.options) == (
        "orders",
        "audit",
        '{"filter":["tag","Glob","a.*"],"fan_in":true}',
    )
    same = (topic("orders", "{ttlMs: 600000, capRecords: 5, durability: disk}"), *ends[1:], copies)
    assert await declaring.apply(*same) == ["orders unchanged", "jobs unchanged", "orders->audit unchanged"]
    changed = (topic("orders", "{durable: true}"), router("orders", "audit"))
    assert await declaring.apply(*changed) == ["orders configured", "orders->audit configured"]
    assert await declaring.config("orders") == TopicConfig(durable=True).resolved()


@on_sqlite
async def test_what_the_api_made_is_adopted_only_on_request(declaring: Declaring, topics: Topics) -> None:
    await topics.make("orders", ttl_ms=5)
    await topics.make("other")
    for operation in ("apply", "diff"):
        with pytest.raises(Conflict, match="Topic/orders exists already, made through the API") as refused:
            await declaring.changes(operation, topic("orders"))
        assert "--adopt" in refused.value.hint
    assert await declaring.log.database.read(read_resources) == []
    [change] = await declaring.changes("apply", topic("orders"), adopt=True)
    assert (change["action"], change["adopted"]) == ("created", True)
    assert await declaring.config("orders") == TopicConfig().resolved()
    assert await declaring.apply(topic("new"), prune=True) == ["new created", "orders deleted"]
    assert await declaring.config("other") is not None


@on_sqlite
async def test_a_diff_of_an_adopted_topic_or_router_is_against_its_present_settings(
    declaring: Declaring, topics: Topics
) -> None:
    await topics.make("orders", ttl_ms=600_000, cap_records=5)
    (change,) = await declaring.changes("diff", topic("orders", "{ttlMs: 10m, capRecords: 9}"), adopt=True)
    changed = [line for line in change["diff"].splitlines() if line[0] in "+-"]
    assert changed == ["--- existing/Topic/orders", "+++ applied/Topic/orders", "-  capRecords: 5", "+  capRecords: 9"]
    (change,) = await declaring.changes("diff", topic("orders", "{ttlMs: 10m, capRecords: 5}"), adopt=True)
    assert (change["diff"], change["adopted"]) == ("", True)


@on_sqlite
async def test_a_topic_that_only_the_api_made_is_named_where_its_resource_is_missing(
    declaring: Declaring, topics: Topics
) -> None:
    await topics.make("orders")
    with pytest.raises(NotFound, match="Topic/orders does not exist") as missing:
        await declaring.ask("get", kind="topic", name="orders")
    assert "routerctl topic describe orders shows it, apply --adopt takes it over" in missing.value.hint
    with pytest.raises(NotFound) as missing:
        await declaring.ask("get", kind="topic", name="other")
    assert missing.value.hint == "no Topic is declared"


@on_sqlite
async def test_a_change_names_the_limits_by_which_it_deletes(declaring: Declaring, topics: Topics) -> None:
    await declaring.apply(topic("orders", "{ttlMs: 10m, capRecords: 5, discard: reject}"), json.dumps(group("a")))
    kept = {"maxEvents": 5, "undelivered": "drop"}
    lower = (topic("orders", "{ttlMs: 1m, capRecords: 6}"), json.dumps(group("a", retention=kept)))
    for dry_run in (True, False):
        changes = await declaring.changes("apply", *lower, dry_run=dry_run)
        assert [one.get("lowers") for one in changes] == [
            ["ttlMs", "discard"],
            ["retention.maxEvents", "retention.undelivered"],
        ]
    higher = (topic("orders", "{ttlMs: 2m, capRecords: 1, discard: reject}"), json.dumps(group("a")))
    assert [one.get("lowers") for one in await declaring.changes("apply", *higher)] == [None, None]
    await topics.make("other")
    (taken,) = await declaring.changes("apply", topic("other", "{capBytes: 1}"), adopt=True)
    assert taken["lowers"] == ["capBytes"]


@on_sqlite
async def test_a_deleted_resource_deletes_its_topic_with_the_records(declaring: Declaring, topics: Topics) -> None:
    await declaring.apply(topic("orders"), topic("audit"), router("orders", "audit"))
    await topics.put("orders", 1, 2, 3)
    with pytest.raises(Conflict, match="Topic/orders is still used: TopicRouter/orders->audit"):
        await declaring.ask("delete", kind="Topic", name="orders")
    for dry_run in (True, False):
        deleted = await declaring.changes("apply", topic("audit"), prune=True, dry_run=dry_run)
        assert [(one["name"], one["action"], one.get("records")) for one in deleted] == [
            ("audit", "unchanged", None),
            ("orders->audit", "deleted", None),
            ("orders", "deleted", 3),
        ]
    assert await declaring.config("orders") is None
    assert await declaring.log.database.read(read_router, "orders->audit") is None
    assert await declaring.config("audit") is not None


@on_sqlite
async def test_a_topic_stays_while_a_resource_that_is_left_uses_it(declaring: Declaring) -> None:
    stock = callback("stock", topic="orders", format="records")
    await declaring.apply(topic("orders"), declare(stock))
    for left, user in ((declare(stock), "EventCallback/stock"), (router("orders", "b"), "TopicRouter/orders->b")):
        for dry_run in (True, False):
            with pytest.raises(Conflict, match=f"Topic/orders is still used: {user}"):
                await declaring.apply(left, prune=True, dry_run=dry_run)
    assert await declaring.config("orders") is not None


async def test_a_router_of_the_api_is_not_deleted_with_a_declared_topic(declaring: Declaring, topics: Topics) -> None:
    await declaring.apply(topic("orders"))
    await declaring.apply(router("orders", "audit"))
    await declaring.log.database.write(_undeclare)
    with pytest.raises(Conflict, match="Topic/orders is still used by routers that no resource declares: orders->aud"):
        await declaring.ask("delete", kind="Topic", name="orders", dry_run=True)
    await declaring.log.submit(DeleteRouter("orders->audit"))
    await declaring.ask("delete", kind="Topic", name="orders")


def _undeclare(conn: Connection) -> None:
    """Leave the routers, and forget that resources declare them."""
    execute(conn, "DELETE FROM resources WHERE kind = 'TopicRouter'")


@on_sqlite
async def test_only_the_resource_changes_and_deletes_what_it_declares(declaring: Declaring, topics: Topics) -> None:
    await declaring.apply(topic("orders", "{ttlMs: 5}"), router("orders", "audit"))
    await topics.make("orders", ttl_ms=5)  # the same configuration changes nothing
    submit = declaring.log.submit
    for unit in (
        PutTopic("orders", TopicConfig(), max_topics=0, random=bytes(16)),
        PatchTopic("orders", {"ttl_ms": 6}),
        DeleteTopic("orders"),
        DeleteTopic("audit"),
        DeleteRouter("orders->audit"),
    ):
        with pytest.raises(Incompatible, match="is declared by Topic") as refused:
            await submit(unit)
        assert refused.value.detail is not None
        assert refused.value.detail["reason"] == "declared"


@on_sqlite
async def test_the_rules_of_requests_are_those_of_resources(declaring: Declaring, log: EventLog) -> None:
    for text, message in (
        (topic("q", "{type: queue, deadLetter: q}"), "a queue cannot be its own `dead_letter`"),
        (router("a", "a"), "a router needs two topics"),
        (router("a", "b", ", filter: [tag, Regex, x]"), "no operator 'Regex'"),
        (router("a", "b", ", map: {type: x}"), "`map` describes events"),
        (router("a", "group:edge"), "EventGroup edge is not declared"),
        (topic("group:edge"), "must not be the topic of a group"),
    ):
        with pytest.raises(InvalidResources, match=message):
            await declaring.apply(text)
    await declaring.apply(router("a", "b"), router("b", "c"))
    for text, message in (
        (router("c", "a"), "TopicRouter/c->a: records would circulate: c -> a -> b -> c"),
        (router("x", "b"), "TopicRouter/x->b: the topic 'b' already gets the records of 'a'"),
        (router("x", "y", ", createDest: false"), "TopicRouter/x->y: topic 'y' does not exist"),
        (router("a", "b").replace("dest: 'b'", "dest: 'z'"), "which cannot be changed"),
        (topic("a", "{type: queue}"), "cannot become a queue"),
    ):
        for dry_run in (True, False):
            with pytest.raises(Conflict, match=message):
                await declaring.apply(text, adopt=True, dry_run=dry_run)
    declaring.services = Services(log, limits=Limits(max_topics=3, max_routers=2))
    with pytest.raises(Conflict, match="Topic/d: the limit max_topics of 3 is reached"):
        await declaring.apply(topic("d"))
    with pytest.raises(Conflict, match="TopicRouter/a->d: the limit max_routers of 2 is reached"):
        await declaring.apply(router("a", "d"))


@on_sqlite
async def test_a_router_of_a_group_is_declared_with_the_group(declaring: Declaring) -> None:
    templates = ", map: {type: routerd.order, payload: {n: '${data.n}'}}"
    both = (declare(group("a")), router("orders", "group:edge", templates))
    assert await declaring.apply(*both) == ["edge created", "orders->group:edge created"]
    assert await declaring.apply(*both) == ["edge unchanged", "orders->group:edge unchanged"]
    with pytest.raises(Conflict, match="EventGroup/edge is still used: TopicRouter/orders->group:edge"):
        await declaring.ask("delete", kind="EventGroup", name="edge")
    assert await declaring.apply("# nothing", prune=True, allow_empty=True) == [
        "orders->group:edge deleted",
        "edge deleted",
    ]


@on_sqlite
async def test_a_resource_of_another_program_with_the_same_kind_is_deleted_without_a_topic(
    declaring: Declaring, topics: Topics
) -> None:
    await topics.make("orders")
    await declaring.log.database.write(_store_foreign)
    deleted = await declaring.changes("apply", prune=True, allow_empty=True)
    assert [(one["apiVersion"], one["name"], one["action"]) for one in deleted] == [
        ("kafka.example/v1", "orders", "deleted")
    ]
    assert await declaring.config("orders") is not None


def _store_foreign(conn: Connection) -> None:
    """Store a resource as an earlier version did, which knew no kind Topic of its own."""
    put_resource(conn, api_version="kafka.example/v1", kind="Topic", name="orders", annotations={}, spec={}, now=1)


async def test_a_topic_that_differs_from_its_resource_is_shown_and_put_right(declaring: Declaring) -> None:
    text = topic("orders", "{ttlMs: 5}")
    await declaring.apply(text)
    await declaring.log.database.write(_forget_config)
    [change] = await declaring.changes("diff", text)
    assert change["action"] == "configured"
    assert "-  capRecords: 9" in change["diff"].splitlines()
    assert "+  ttlMs: 5" in change["diff"].splitlines()
    assert await declaring.apply(text) == ["orders configured"]
    assert await declaring.apply(text) == ["orders unchanged"]


def _forget_config(conn: Connection) -> None:
    """Change a topic behind the back of its resource."""
    execute(conn, "UPDATE topics SET config = ? WHERE name = 'orders'", ('{"cap_records":9}',))
