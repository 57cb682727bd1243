"""routerctl callback: states, resends, dead letters and tests, on a database without a node and on an API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import LinkState, read_cursor, set_paused
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.holding import DISABLED_BY
from eventd.log.cursors.steps import Postponement, Step
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.callback_cursors import callback_name
from tests.integration.cli.conftest import Control
from tests.support.bulk import run_jobs

CALLBACKS = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec: {nodeName: onprem}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: billing}
spec:
  source: {groupRef: edge}
  match: {types: ["client.*"]}
  url: https://billing.example/hooks
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: changes}
spec:
  source: {topic: clients}
  url: https://billing.example/changes
  format: routemaster
"""
OTHER = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: other}
spec: {nodeName: onprem}
"""
HEAD = ["NAME", "ORIGIN", "URL", "STATE", "REASON", "WAITING", "LAG", "LAST_SUCCESS", "NEXT_ATTEMPT"]
both = pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)


@pytest.fixture
def declared(routerctl: Control) -> Control:
    """A node with the group edge, the topic clients and a callback for each, whose events follow."""
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    for name in ("e1", "e2"):
        routerctl("fed", "event", "emit", "--group", "edge", "--type", "client.seen", "--id", name)
    routerctl("fed", "event", "emit", "--group", "edge", "--type", "server.seen", "--id", "e3")
    return routerctl


def of(control: Control, name: str) -> dict[str, Any]:
    found: dict[str, Any] = control("callback", "describe", name, "-o", "json").json
    return found


@both
def test_the_state_of_each_is_listed(declared: Control) -> None:
    head, billing, changes = declared("callback", "list").lines
    assert head.split() == HEAD
    assert billing.split()[:6] == ["billing", "declared", "https://billing.example/hooks", "running", "-", "2"]
    assert changes.split()[0] == "changes"
    assert declared("callback", "list", "--group", "edge", "-o", "name").lines == ["billing"]
    assert "EventGroup egde is not declared" in declared("callback", "list", "--group", "egde", code=3).err
    assert (
        "there is no callback biling (did you mean billing?)" in declared("callback", "describe", "biling", code=3).err
    )


@both
def test_a_description_shows_limits_in_units(declared: Control) -> None:
    lines = dict(line.split(":", 1) for line in declared("callback", "describe", "billing").lines if ":" in line)
    shown = {name: value.strip() for name, value in lines.items()}
    assert shown["Batch"] == "1 event, 1MiB"
    assert shown["Timeout"] == "20s, to connect 5s"
    assert shown["Waiting"].startswith("2 events, the oldest for ")
    assert shown["Retry"] == "after 1s, doubling to 10m0s; a search after 5 answers of refused content"
    assert shown["Hold"] == "168h0m0s"
    assert (shown["Disable after"], shown["Per second"], shown["Keys"]) == ("120h0m0s", "no limit", "-")


@both
def test_a_pause_shows_the_operator_and_ends(declared: Control) -> None:
    assert declared("callback", "pause", "billing").lines[1].split()[3] == "paused"
    assert of(declared, "billing")["pausedBy"]
    assert declared("callback", "resume", "billing").lines[1].split()[3] == "running"
    assert of(declared, "billing")["pausedBy"] == ""
    (row,) = [row for row in declared("callback", "list", "-o", "json").json if row["callback"] == "billing"]
    assert declared("callback", "pause", "billing", "-o", "json").json.keys() == row.keys()
    assert declared("callback", "resume", "billing", "-o", "json").json.keys() == row.keys()
    plan = declared("callback", "reset", "billing", "--latest", "--dry-run", "-o", "json").json
    assert (plan["from"], plan["again"], plan["skipped"], plan["countIsExact"]) == (0, 0, 2, True)
    moved = declared("callback", "reset", "billing", "-o", "json").json
    assert moved.keys() == {*row, "from", "to"}
    assert (moved["from"], moved["to"], moved["waitingEvents"]) == (0, 0, 2)


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_pause_by_an_operator_does_not_show_why_attempts_failed(declared: Control, routerctl_url: str) -> None:
    asyncio.run(_fail(routerctl_url))
    assert of(declared, "billing")["reason"] == "http_503"
    declared("callback", "pause", "billing")
    state = of(declared, "billing")
    assert (state["state"], state["reason"], state["lastError"]) == ("paused", "", "answered 503")
    asyncio.run(_fail(routerctl_url, disabled=True))
    state = of(declared, "billing")
    assert (state["state"], state["reason"], state["pausedBy"]) == ("paused", "http_503", "the node")


async def _fail(url: str, *, disabled: bool = False) -> None:
    """Record a failed attempt of the callback `billing`; with `disabled`, as the one after which the node gives up."""
    database, clock = Database(url), SystemClock()
    try:
        log = await EventLog.open(database, clock)
        name, now = callback_name("billing"), clock.now()
        await log.postpone(Postponement(name, 0, LinkState.BACKING_OFF, "http_503", "answered 503", 2, now, now + 1))
        if disabled:
            await database.write(set_paused, name, at=now, by=DISABLED_BY)
        await log.close()
    finally:
        database.close()


@pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
def test_work_that_waits_for_a_node_is_said_to_wait(declared: Control, request: pytest.FixtureRequest) -> None:
    told = "note: no node serves this database now; events are sent when one starts\n"
    runs = "api" in request.node.callspec.id
    for line in (["reset", "billing", "--latest"], ["resend", "billing", "e1"], ["resume", "billing"]):
        assert declared("callback", *line).err == ("" if runs else told), line
    assert declared("callback", "resend", "billing", "e1", "--dry-run").err == ""
    assert declared("callback", "pause", "billing").err == ""


@both
def test_a_callback_without_its_topic_is_blocked(routerctl: Control) -> None:
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS))
    routerctl("topic", "delete", "clients")
    routerctl("apply", "-f", routerctl.file(OTHER))  # a running node notices within seconds
    state = of(routerctl, "changes")
    assert (state["state"], state["reason"]) == ("blocked", "no_topic")
    assert state["lastError"] == "the topic clients does not exist"
    told = routerctl("callback", "pause", "changes", code=1).err
    assert "the topic clients of the callback changes does not exist (create it: routerctl topic put clients)" in told


@both
def test_what_was_passed_is_sent_again(declared: Control) -> None:
    nothing = declared("callback", "replay", "billing", "--since", "1h", code=1).err
    assert "there is nothing to send to billing again" in nothing, "what waits is sent anyway"
    moved = declared("callback", "reset", "billing", "--latest").out
    assert moved.startswith("billing: continues at position 3, was at 0")
    assert declared("callback", "resend", "billing", "e1", "--dry-run").lines == ["billing: would send 1 event again"]
    assert of(declared, "billing")["resends"] == []
    assert declared("callback", "resend", "billing", "e1").lines == ["billing: sending 1 event again"]
    refused = declared("callback", "resend", "billing", "e1", "e3", code=1).err
    assert "e3: the callback has received no stored event with this id" in refused, "it does not match"
    by_seq = declared("callback", "replay", "billing", "--from-seq", "2", "--to-seq", "3")
    assert by_seq.lines == ["billing: sending 1 event again"]
    assert declared("callback", "replay", "billing", "--since", "1h", "-o", "json").json[0]["events"] == 2
    assert [one["until"] for one in of(declared, "billing")["resends"]] == [1, 3, 3]
    declared("callback", "reset", "billing")
    assert (of(declared, "billing")["resends"], of(declared, "billing")["waitingEvents"]) == ([], 2)


@both
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["replay", "billing"], "choose events: --since and --until, --from-seq and --to-seq, or --failed"),
        (["replay", "billing", "--since", "1h", "--from-seq", "1"], "choose events in one way"),
        (["reset", "billing", "--since", "1h", "--latest"], "choose a position in one way: --since, or --latest"),
        (["dead-letters", "drop", "billing"], "choose dead letters in one way: ID..., or --all"),
    ],
)
def test_a_choice_is_made_in_one_way(declared: Control, line: list[str], told: str) -> None:
    assert told in declared("callback", *line, code=2).err


@pytest.mark.parametrize("routerctl", ["sqlite", "postgres", "api"], indirect=True)
def test_dead_letters_are_listed_retried_and_dropped(declared: Control, routerctl_url: str) -> None:
    declared("topic", "write", "clients", "--tag", "client.seen", "{}")
    declared("topic", "write", "clients", "--tag", "client.update", '{"url":"https://x/1","t":1}')
    asyncio.run(_give_up(routerctl_url, {4: "unsuitable", 5: "http_422", 6: "http_422"}))
    head, newest, *_ = declared("callback", "dead-letters", "list", "changes").lines
    assert head.split() == ["ID", "EVENT_ID", "REASON", "DETAIL", "ATTEMPTS", "SINCE"]
    assert newest.split()[1:3] == ["r6", "http_422"]
    first, second, third = declared("callback", "dead-letters", "list", "changes", "--oldest", "-o", "name").lines
    assert declared("callback", "replay", "changes", "--failed", "--dry-run").out.startswith(
        "changes: would send 1 event"
    )
    again = declared("callback", "dead-letters", "retry", "changes", "--all")
    assert again.lines == ["sending 1 dead letter again"]
    assert f"dead letter {first} stays: it has no form in the callback's format" in again.err
    assert f"dead letter {third} stays: it is not stored any more" in again.err
    told = declared("callback", "dead-letters", "drop", "changes", second, code=3).err
    assert told == f"error: the callback has no dead letter {second}\n"
    assert declared("callback", "dead-letters", "drop", "changes", "--all").lines == ["dropped 2 dead letters"]


@pytest.mark.parametrize("routerctl", ["sqlite", "postgres"], indirect=True)
def test_a_job_retries_and_drops_the_dead_letters_of_a_callback(declared: Control, routerctl_url: str) -> None:
    declared("topic", "write", "clients", "--tag", "client.seen", "{}")
    declared("topic", "write", "clients", "--tag", "client.update", '{"url":"https://x/1","t":1}')
    asyncio.run(_give_up(routerctl_url, {4: "unsuitable", 5: "http_422", 6: "http_422"}))
    declared("job", "start", "retry", "--callback", "changes", "--yes")
    asyncio.run(run_jobs(routerctl_url))
    (job,) = declared("job", "list", "-o", "json").json
    assert (job["state"], job["done"], job["total"], job["group"]) == ("done", 3, 3, "")
    assert [(each["outcome"], each["reason"], each["count"]) for each in job["results"]] == [
        ("kept", "it has no form in the callback's format", 1),
        ("kept", "it is not stored any more", 1),
        ("retried", "http_422", 1),
    ]
    declared("job", "start", "drop", "--callback", "changes", "--reason", "unsuitable", "--yes")
    asyncio.run(run_jobs(routerctl_url))
    assert [line.split()[2] for line in declared("callback", "dead-letters", "list", "changes").lines[1:]] == [
        "http_422"
    ]


async def _give_up(url: str, reasons: dict[int, str]) -> None:
    """Pass the records of the callback `changes`, as its consumer does; they become dead letters."""
    database, clock = Database(url), SystemClock()
    try:
        log = await EventLog.open(database, clock)
        cursor = await database.read(read_cursor, callback_name("changes"))
        letters = [
            DeadLetter(cursor.name, at, cursor.topic_id, f"r{at}", reason, "said so", 1, clock.now())
            for at, reason in reasons.items()
        ]
        await log.settle(Step(cursor.name, cursor.position, max(reasons), max(reasons), clock.now(), (), letters, "v2"))
        await log.close()
    finally:
        database.close()


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_test_message_that_is_not_delivered_says_why(routerctl: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTD_CALLBACK_ALLOW", "127.0.0.1:1")
    about = "url: http://127.0.0.1:1/\n  allowPlain: true"
    routerctl("topic", "put", "clients")
    routerctl("apply", "-f", routerctl.file(CALLBACKS.replace("url: https://billing.example/hooks", about)))
    told = routerctl("callback", "test", "billing", code=4)
    assert told.out.startswith("billing: unreachable after ")
    assert "the test message was not delivered: cannot connect to 127.0.0.1:1" in told.err
    secret = f"{about}\n  signing: {{keys: [{{id: a, secretFile: {routerctl.folder}/none.key}}]}}"
    routerctl("apply", "-f", routerctl.file(CALLBACKS.replace("url: https://billing.example/hooks", secret)))
    told = routerctl("callback", "test", "billing", code=4)
    assert told.out.startswith("billing: secret_unreadable after ")
    assert "none.key: No such file or directory" in told.err


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_an_apply_without_a_node_says_whose_setting_allows_an_address(
    routerctl: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = routerctl.file(CALLBACKS.split("---\n")[1].replace("https://billing.example/", "https://127.0.0.1:8443/"))
    routerctl("apply", "-f", routerctl.file(OTHER.replace("other", "edge"), "group.yaml"))
    refused = routerctl("apply", "-f", local, code=1).err
    assert "no node answers here, so callback_allow of this command decided (default)" in refused
    monkeypatch.setenv("EVENTD_CALLBACK_ALLOW", "127.0.0.1")
    applied = routerctl("apply", "-f", local)
    assert applied.out == "eventcallback/billing created\n"
    assert (
        "note: no node answers here, so callback_allow of this command (EVENTD_CALLBACK_ALLOW) decided" in applied.err
    )
    assert routerctl("apply", "-f", local).err == ""
