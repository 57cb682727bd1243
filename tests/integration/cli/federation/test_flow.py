"""The commands `federation`: summary, links, pause, resume, redeliver, dead letters, status; and `job`."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing

import pytest

from eventd.cli.gateway.lock import serving_lock
from eventd.cli.terminal import confirm
from eventd.egress.cursors import link_name
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic
from eventd.log.cursors.cursors import LinkState, read_cursor
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.steps import Postponement, Step, postpone
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.links import record_gap
from tests.integration.cli.conftest import Control, everywhere
from tests.support.bulk import run_jobs
from tests.support.group_ledger import GroupLedger

LINK = link_name("edge", "cloud")


class Consumer:
    """Writes to the ledger what the peer's consumer would."""

    def __init__(self, url: str) -> None:
        self._url = url

    def settle(self, upto: int, *, refused: int = 0) -> None:
        """Pass the records up to there; one of them may be refused."""
        asyncio.run(self._settle(upto, refused))

    async def _settle(self, upto: int, refused: int) -> None:
        database = Database(self._url)
        try:
            log = await EventLog.open(database, SystemClock())
            cursor = await database.read(read_cursor, LINK)
            now = SystemClock().now()
            exceptions = [(refused, "refused")] if refused else []
            books = GroupLedger(log, SystemClock())  # type: ignore[arg-type]
            batch = books.batch(LINK, cursor.sent_upto, upto, cursor.selector_version, exceptions)
            letters = [DeadLetter(LINK, refused, cursor.topic_id, f"e{refused}", "invalid", "said so", 1, now)]
            step = Step(LINK, cursor.position, upto, upto, now, [batch], letters if refused else (), "v2")
            await log.settle(step)
            await log.close()
        finally:
            database.close()

    def fail(self, upto: int) -> None:
        """Try in vain."""
        database = Database(self._url)
        try:
            cursor, now = database.read_now(read_cursor, LINK), SystemClock().now()
            state = LinkState.BACKING_OFF
            database.write_now(
                postpone,
                Postponement(LINK, cursor.position, state, "unreachable", "no route", upto, now, now + 60_000_000),
            )
        finally:
            database.close()


@pytest.fixture
def consumer(edge: Control, routerctl_url: str) -> Consumer:
    """The peer's consumer, on the database behind `routerctl`."""
    return Consumer(routerctl_url)


@pytest.fixture
def edge(routerctl: Control) -> Control:
    """A node with the group edge, the peer cloud, and the events e1 to e4."""
    routerctl.edge()
    lines = "".join(f'{{"type":"t","id":"e{n}"}}\n' for n in range(1, 5))
    routerctl("fed", "event", "emit", "--stdin", stdin=lines)
    return routerctl


def test_the_summary_has_a_line_for_each_peer(edge: Control, consumer: Consumer) -> None:
    consumer.settle(2, refused=2)
    consumer.fail(3)
    told = edge("federation", "deliveries", "summary", "--group", "edge")
    assert told.lines[0].split() == [
        *("GROUP", "PEER", "EVENTS", "DELIVERED", "STALE_TTL", "FAILED", "PENDING", "MAX_LAG", "MIN_EXPIRES_IN")
    ]
    cells = told.lines[1].split()
    assert [*cells[:7], cells[8]] == ["edge", "cloud", "4", "1", "0", "1", "1", "-"]
    assert told.err == "note: cloud in group edge: 1 refused\n"
    (row,) = edge("fed", "deliveries", "summary", "-o", "json").json
    assert set(row) == {
        *("group", "peer", "events", "delivered", "staleTTL", "failed", "pending", "maxLagSeconds"),
        *("minExpiresInSeconds", "expired", "refused", "inPath", "unknown"),
    }
    assert row["minExpiresInSeconds"] == 0
    assert edge("fed", "deliveries", "summary", "--type", "none", "-o", "json").json[0]["events"] == 0
    assert edge("fed", "deliveries", "summary", "--peer", "x", code=3).err.startswith("error: group edge has no peer x")


def test_links_show_why_a_peer_waits(edge: Control, consumer: Consumer) -> None:
    consumer.fail(4)
    told = edge("federation", "links")
    assert told.lines[0].split() == [
        *("GROUP", "PEER", "STATE", "REASON", "WAITING", "LAG", "LAST_SUCCESS", "NEXT_ATTEMPT", "LAST_ERROR")
    ]
    cells = told.lines[1].split()
    assert cells[:5] == ["edge", "cloud", "backing-off", "unreachable", "4"]
    assert cells[-2:] == ["no", "route"]
    assert edge("fed", "peers", "-o", "name").lines == ["edge/cloud"]
    answer = edge("fed", "links", "-o", "json").json
    assert answer["outbound"][0]["lagEvents"] == 4
    assert answer["inbound"] == []


def test_pause_and_resume(edge: Control) -> None:
    (_, line) = edge("federation", "pause", "cloud", "--group", "edge").lines
    assert line.split()[2] == "paused"
    assert edge("fed", "links", "-o", "json").json["outbound"][0]["pausedBy"]
    edge("fed", "resume", "cloud")
    told = edge("fed", "pause", "cloud", "--by", "ann: upgrade", "-o", "json").json
    assert (told["state"], told["pausedBy"]) == ("paused", "ann: upgrade")
    assert edge("fed", "pause", "cloud", "--by", "bob").err.startswith(
        "note: cloud is paused already, by ann: upgrade since "
    )
    assert edge("fed", "resume", "cloud", "-o", "json").json["state"] == "running"
    assert edge("fed", "pause", "clod", code=3).err.startswith(
        "error: group edge has no peer clod (did you mean cloud?)"
    )


def test_redeliver_says_what_it_would_send_and_then_sends(edge: Control, consumer: Consumer) -> None:
    consumer.settle(3)
    dry = edge("federation", "redeliver", "cloud", "--from-seq", "2", "--dry-run")
    assert dry.lines[0].startswith("would send 2 events (")
    assert dry.lines[0].endswith("left out: 1 already in the backlog")
    assert edge("fed", "redeliver", "cloud", "--id", "e1").lines[0].startswith("sends 1 event (")
    assert edge("fed", "redeliver", "cloud", "--since", "1h", "--until", "0s", "-o", "json").json["events"] == 3
    assert len(edge("fed", "links", "-o", "json").json["outbound"][0]["repairs"]) == 2
    refused = edge("fed", "redeliver", "cloud", "--id", "e4", code=1)
    assert refused.err == "error: event e4 cannot be sent again: it is still in the backlog of the link\n"
    beyond = edge("fed", "redeliver", "cloud", "--from-seq", "9", code=1)
    assert beyond.err == "error: group edge ends at seq 4, and the range begins at 9\n"
    unknown = edge("fed", "redeliver", "cloud", "--id", "e9", code=3)
    assert unknown.err == "error: event e9 cannot be sent again: group edge has no event with this id\n"
    both = edge("fed", "redeliver", "cloud", "--id", "e1", "--since", "1h", code=2)
    assert both.err.startswith("error: choose events in one way: --id, --from-seq")


def test_gaps_are_what_senders_said_they_lost(edge: Control, routerctl_url: str) -> None:
    assert edge("federation", "gaps", "-o", "json").json == []
    with closing(Database(routerctl_url)) as database:
        topic = database.read_now(read_topic, "group:edge").id
        for node, after, upto, reason in (("hub", 4, 9, "lost"), ("far", 2, 3, "taken_back"), ("hub", 12, 20, "lost")):
            database.write_now(record_gap, topic, node, "epoch1", after, upto, reason, SystemClock().now())
    told = edge("federation", "gaps")
    assert told.lines[0].split() == ["GROUP", "FROM", "AFTER", "UPTO", "REASON", "RECORDED"]
    assert [line.split()[:5] for line in told.lines[1:]] == [
        ["edge", "hub", "4", "9", "lost"],
        ["edge", "far", "2", "3", "taken_back"],
        ["edge", "hub", "12", "20", "lost"],
    ]
    found = edge("federation", "gaps", "--from", "hub", "-o", "json").json
    assert [(gap["after"], gap["upto"], gap["epoch"]) for gap in found] == [(4, 9, "epoch1"), (12, 20, "epoch1")]
    first, middle, last = edge("fed", "gaps", "-o", "name").lines
    page = edge("fed", "gaps", "--limit", "1", "-o", "name")
    assert page.lines == [last]
    older = f"note: group edge has older rows: continue with --group edge --before {last} (--limit 0 shows all)\n"
    assert page.err == older
    assert edge("fed", "gaps", "--before", last, "-o", "name").lines == [first, middle]
    page = edge("fed", "gaps", "--limit", "1", "--oldest", "-o", "name")
    assert page.lines == [first]
    assert (
        page.err
        == f"note: group edge has more rows: continue with --group edge --after {first} (--limit 0 shows all)\n"
    )
    assert edge("fed", "gaps", "--from", "hub", "--after", first, "-o", "name").lines == [last]
    assert edge("fed", "gaps", "--group", "egde", code=3).err.startswith("error: EventGroup egde is not declared")


@everywhere
def test_dead_letters_are_listed_retried_and_dropped(edge: Control, consumer: Consumer) -> None:
    consumer.settle(1, refused=1)
    consumer.settle(2, refused=2)
    consumer.settle(3, refused=3)
    told = edge("federation", "dead-letters", "list", "--group", "edge")
    assert told.lines[0].split() == ["ID", "EVENT_ID", "PEER", "REASON", "DETAIL", "ATTEMPTS", "SINCE"]
    assert [line.split()[1:4] for line in told.lines[1:]] == [[f"e{n}", "cloud", "invalid"] for n in (1, 2, 3)]
    first, second, third = edge("fed", "dead-letters", "list", "-o", "name").lines
    page = edge("fed", "dead-letters", "list", "--limit", "1", "-o", "name")
    assert page.lines == [third]
    assert "has older rows: continue with --group edge --before" in page.err
    assert edge("fed", "dead-letters", "list", "--before", third, "-o", "name").lines == [first, second]
    page = edge("fed", "dead-letters", "list", "--limit", "1", "--oldest", "-o", "json")
    assert (
        page.err
        == f"note: group edge has more rows: continue with --group edge --after {first} (--limit 0 shows all)\n"
    )
    assert len(edge("fed", "dead-letters", "list", "--after", first, "-o", "json").json) == 2
    assert edge("fed", "dead-letters", "retry", first).lines == ["sending 1 dead letter again"]
    assert edge("fed", "event", "deliveries", "--event-id", "e1", "-o", "json").json[0]["status"] == "pending"
    assert edge("fed", "dead-letters", "drop", second).lines == ["dropped 1 dead letter"]
    assert edge("fed", "dead-letters", "drop", second, code=3).err == f"error: group edge has no dead letter {second}\n"
    assert edge("fed", "dead-letters", "retry", "--peer", "cloud", "-o", "json").json[0]["retried"] == 1
    assert edge("fed", "dead-letters", "drop", "--all").lines == ["dropped 0 dead letters"]
    assert edge("fed", "dead-letters", "drop", code=2).err.startswith("error: choose dead letters in one way")


def test_status_shows_all_groups(edge: Control) -> None:
    told = edge("federation", "status")
    assert told.lines[0].split() == ["GROUP", "NODE", "EVENTS", "BYTES", "SEQ", "PEERS", "LINKS", "LISTEN"]
    cells = told.lines[1].split()
    assert [cells[0], cells[1], cells[2], *cells[4:]] == ["edge", "onprem", "4", "4", "1", "1", "running", "-"]
    assert edge("fed", "status", "-o", "json").json["groups"][0]["links"] == {"running": 1}


def test_status_says_whether_a_node_is_at_work(control: Control) -> None:
    control.edge()
    assert control("fed", "status").err == "note: no node serves this database now\n"
    assert control("fed", "links").err.startswith("note: no node serves this database now; ")
    database = Database(f"sqlite:///{control.folder}/eventd-data/eventd.db")
    try:
        with serving_lock(database):
            assert control("fed", "status").err == f"note: process {os.getpid()} serves this database\n"
            assert control("fed", "links").err == ""
    finally:
        database.close()


# --- bulk jobs -----------------------------------------------------------------------------------------------------


def test_a_job_is_counted_started_and_waited_for(
    edge: Control,
    consumer: Consumer,
    routerctl_url: str,
) -> None:
    for at in (1, 2, 3):
        consumer.settle(at, refused=at)
    counted = edge("job", "start", "drop", "--group", "edge", "--reason", "invalid", "--dry-run")
    assert counted.lines == ["would drop 3 dead letters of group edge"]
    nothing = edge("job", "start", "drop", "--group", "edge", "--reason", "loop")
    assert nothing.lines == ["would drop 0 dead letters of group edge"]
    assert edge("job", "list", "-o", "json").json == []
    number = edge("job", "start", "drop", "--group", "edge", "--peer", "cloud", "--yes", "-o", "name").lines[0]
    assert edge("job", "get", number, "-o", "json").json[0]["state"] == "waiting"
    waiting = edge("job", "wait", number, "--timeout", "10ms", code=4).err
    assert f"job {number} is still waiting: 0 of 3 done" in waiting
    asyncio.run(run_jobs(routerctl_url))
    assert edge("job", "wait", number).lines[1].split() == ["dropped", "invalid", "3"]
    head, row = edge("job", "list").lines
    assert head.split() == ["NUMBER", "STATE", "ACTION", "OF", "DONE", "TOTAL", "DETAIL", "STARTED", "FINISHED"]
    assert row.split()[:7] == [number, "done", "drop", "peer", "edge/cloud", "3", "3"]
    assert edge("fed", "dead-letters", "list", "-o", "json").json == []


def test_a_job_is_cancelled_and_its_wait_fails(edge: Control, consumer: Consumer) -> None:
    consumer.settle(1, refused=1)
    number = edge("job", "start", "retry", "--group", "edge", "--yes", "-o", "name").lines[0]
    assert edge("job", "cancel", number, "-o", "json").json[0]["state"] == "cancelled"
    assert f"job {number} is cancelled: cancelled by " in edge("job", "wait", number, code=4).err
    assert edge("job", "get", "999", code=3).err.startswith("error: there is no job 999")


def test_a_job_is_confirmed_and_a_large_one_by_its_number(
    edge: Control,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for at in (1, 2):
        consumer.settle(at, refused=at)
    answers = iter(["no", "yes", "yes", "3", "2"])
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(confirm, "_ask", answer)
    line = ("job", "start", "retry", "--group", "edge")
    assert edge(*line, code=1).err.endswith("error: nothing was changed\n")
    assert edge(*line).lines[0].endswith("retry 2 dead letters of group edge")
    monkeypatch.setattr(confirm, "MOST_BY_YES", 1)
    edge(*line, code=1)
    edge(*line, code=1)
    edge(*line)
    assert asked[0] == "retry 2 dead letters of group edge? [y/N] "
    assert asked[-1] == "retry 2 dead letters of group edge? Type 2 to confirm: "


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["retry"], "choose dead letters: --group, --subscription or --callback"),
        (["mend", "--group", "edge"], "the action is retry or drop, not 'mend'"),
    ],
)
def test_a_job_has_an_action_and_an_owner(control: Control, line: list[str], problem: str) -> None:
    assert problem in control("job", "start", *line, "--data-dir", "none", code=None).err
