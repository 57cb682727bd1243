"""Callbacks are checked against what no resource declares: the topics of records, and the allowed addresses."""

from __future__ import annotations

import pytest

from eventd.errors import Conflict
from eventd.log.core.eventlog import EventLog
from eventd.log.topics.topics import DeleteTopic
from eventd.net.address_rules import AddressRules
from eventd.resources.apply import Action, apply_loaded, delete_resources
from eventd.resources.reading.documents import Identity, load_text
from eventd.resources.reading.problems import InvalidResources
from eventd.store.engine.database import Database
from eventd.store.rows.registry import read_resources
from eventd.testing import NOW
from tests.support.declared import API_VERSION, callback, declare, group
from tests.support.fresh import on_sqlite
from tests.support.topics import Topics

INSIDE = AddressRules.of_callbacks(["10.0.0.0/8", "127.0.0.1:8080"], ["10.1.0.0/16"])


@pytest.fixture
async def topics(log: EventLog) -> Topics:
    made = Topics(log)
    await made.make("orders")
    await made.make("jobs", type="queue")
    return made


async def apply(database: Database, text: str, rules: AddressRules | None = None, **how: bool) -> list[str]:
    """Apply a text; return what was done, or the problems."""
    run = database.read if how.get("dry_run") else database.write
    try:
        plan = await run(apply_loaded, load_text("a.yaml", text), now=NOW, rules=rules, **how)
    except InvalidResources as refused:
        return [str(problem) for problem in refused.problems]
    return [f"{change.identity} {change.action}" for change in plan.changes]


@pytest.mark.usefixtures("topics")
@on_sqlite
async def test_a_topic_must_exist(database: Database, log: EventLog) -> None:
    text = declare(callback("stock", topic="orders"), callback("other", topic="order"))
    problem = (
        "a.yaml:3: EventCallback/other spec.source.topic: topic order does not exist"
        " (create it first: routerctl topic put order)"
    )
    assert await apply(database, text) == [problem]
    assert await apply(database, text, dry_run=True) == [problem]
    assert await database.read(read_resources) == []
    stock = declare(callback("stock", topic="orders"))
    assert await apply(database, stock) == ["EventCallback/stock created"]
    await log.submit(DeleteTopic("orders", if_empty=False))
    assert await apply(database, stock) == [
        "a.yaml:1: EventCallback/stock spec.source.topic: topic orders does not exist"
        " (create it first: routerctl topic put orders)"
    ]


@pytest.mark.usefixtures("topics")
@on_sqlite
async def test_jobs_of_a_queue_are_not_pushed(database: Database) -> None:
    assert await apply(database, declare(callback("stock", topic="jobs"))) == [
        "a.yaml:1: EventCallback/stock spec.source.topic: topic jobs is a queue (name a topic of records)"
    ]


@pytest.mark.usefixtures("log")
@on_sqlite
async def test_a_source_that_is_wrong_in_itself_has_one_problem(database: Database) -> None:
    for topic, problem in (
        ("group:edge", "'group:edge' must not be the topic of a group (write source.groupRef)"),
        ("-x", "must be 1 to 255 letters, digits or '.', '_', ':', '-', beginning with a letter or a digit, not '-x'"),
    ):
        told = await apply(database, declare(callback("stock", topic=topic)))
        assert told == [f"a.yaml:1: EventCallback/stock spec.source.topic: {problem}"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://10.0.0.1/", "10.0.0.1 is a private address (10.0.0.0/8): allow it with EVENTD_CALLBACK_ALLOW if"),
        ("https://[::1]:8443/", "::1 is the loopback address (::1/128): allow it with EVENTD_CALLBACK_ALLOW if"),
        ("https://169.254.169.254/", "169.254.169.254 is a link-local address, where clouds serve metadata"),
        ("https://0x7f000001/", "127.0.0.1 (0x7f000001) is a loopback address"),
        ("https://[::ffff:10.0.0.1]/", "::ffff:a00:1 (::ffff:10.0.0.1) contains 10.0.0.1, which is a private"),
        ("https://9.9.9.9:22/", "9.9.9.9 is refused on port 22 (below 1024): allow it with 9.9.9.9:22 in"),
    ],
)
@pytest.mark.usefixtures("log")
@on_sqlite
async def test_a_forbidden_address_is_refused(database: Database, url: str, reason: str) -> None:
    text = declare(group("a"), callback("billing", url=url))
    [problem] = await apply(database, text)
    assert problem.startswith(f"a.yaml:3: EventCallback/billing spec.url: {reason}")
    assert await database.read(read_resources) == []


@pytest.mark.usefixtures("log")
@on_sqlite
async def test_the_settings_allow_and_deny_addresses(database: Database) -> None:
    async def tell(url: str) -> list[str]:
        text = declare(group("a"), callback("billing", url=url, allowPlain=True))
        return await apply(database, text, INSIDE, dry_run=True)

    for url in ("https://10.0.0.1/", "http://127.0.0.1:8080/", "https://10.1.2.3.example/", "https://localhost/"):
        assert await tell(url) == ["EventGroup/edge created", "EventCallback/billing created"]
    [denied] = await tell("https://10.1.2.3/")
    assert denied == (
        "a.yaml:3: EventCallback/billing spec.url: 10.1.2.3 is denied by entry 1 of EVENTD_CALLBACK_DENY, '10.1.0.0/16'"
    )
    [port] = await tell("http://127.0.0.1:8081/")
    assert " 127.0.0.1 is a loopback address (127.0.0.0/8): " in port


@pytest.mark.usefixtures("log")
async def test_problems_of_a_callback_are_reported_together(database: Database) -> None:
    text = declare(callback("billing", topic="orders", url="http://127.0.0.1/", format="cloudevents"))
    assert [problem.partition("spec.")[2].partition(":")[0] for problem in await apply(database, text)] == [
        "format",
        "source.topic",
        "url",
    ]


@pytest.mark.usefixtures("log")
@on_sqlite
async def test_a_group_goes_with_its_callbacks(database: Database) -> None:
    both = declare(group("a"), callback("billing"))
    assert await apply(database, both) == ["EventGroup/edge created", "EventCallback/billing created"]
    assert await apply(database, both) == ["EventGroup/edge unchanged", "EventCallback/billing unchanged"]
    edge = Identity(API_VERSION, "EventGroup", "edge")
    with pytest.raises(Conflict, match="EventGroup/edge is still used: EventCallback/billing"):
        await database.write(delete_resources, [edge], now=NOW)
    planned = await database.write(delete_resources, [edge, Identity(API_VERSION, "EventCallback", "billing")], now=NOW)
    assert [(change.kind, change.action) for change in planned.changes] == [
        ("EventCallback", Action.DELETED),
        ("EventGroup", Action.DELETED),
    ]
