"""Doctor over a real ledger: its findings for every state of a delivery, and what it fixes when allowed to."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.api.doctor import peer_backlogs
from eventd.api.doctor.fixing import carry_out
from eventd.api.doctor.plan import ACTIONS, Action
from eventd.api.framework.operations import Services
from eventd.dynamic.part import form_part
from eventd.egress.cursors import link_name, subscription_name
from eventd.errors import NotFound, Unavailable
from eventd.groups.subscriptions import COUNTED
from eventd.log.core import missing_records
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic
from eventd.log.core.units import Publish
from eventd.log.cursors.cursors import LinkState, read_cursor, rewind
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.steps import Postponement, Step, postpone
from eventd.log.delivery.repairs import read_dead_letters
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.observe.metrics import Metrics
from eventd.plugins.contract.contract import Result
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.store.parts.parts import put_part
from eventd.store.rows.links import record_gap
from eventd.store.rows.runs import NewRun, RunEnd, RunStatus, begin_run, end_run
from eventd.store.schema.tables import batches, inbound_gaps, metadata
from eventd.testing import NOW, ManualClock, draft, event
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

HOUR = 3600 * SECOND


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a with one peer, b, that takes everything."""
    found = GroupLedger(log, clock)
    await found.declare("b")
    return found


class Report:
    """An answer of doctor, to be asked about."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.federation: dict[str, Any] = answer["federation"]

    def __getitem__(self, name: str) -> tuple[str, str]:
        """The status and the detail of a check, by its name without the group."""
        (found,) = [check for check in self.answer["checks"] if check["name"] == f"g{name}"]
        return found["status"], found["detail"]

    @property
    def names(self) -> list[str]:
        return [check["name"] for check in self.answer["checks"]]

    def codes(self, status: str) -> list[str]:
        """The codes of all checks that ended so."""
        return [check.get("code", "") for check in self.answer["checks"] if check["status"] == status]


async def examine(books: GroupLedger, **params: Any) -> Report:
    return Report(await books.call("doctor.examine", **params))


async def fix(books: GroupLedger) -> list[tuple[str, bool, str]]:
    answer = await books.call("doctor.fix")
    return [(each["action"], each["changed"], each["result"]) for each in answer["fix"]]


async def all_rows(log: EventLog) -> dict[str, list[Any]]:
    """Everything the database holds."""

    def read(conn: Connection) -> dict[str, list[Any]]:
        tables = metadata.sorted_tables
        return {
            table.name: sorted(tuple(map(str, row)) for row in conn.sqlalchemy.execute(sa.select(table)))
            for table in tables
        }

    return await log.database.read(read)


async def hold_up(books: GroupLedger, state: LinkState, reason: str = "unauthorized") -> None:
    """Let the link to b be held up, in a state that ends an hour from now."""
    name, now = link_name("g", "b"), books.clock.now()
    cursor = await books.log.database.read(read_cursor, name)
    failure = Postponement(name, cursor.position, state, reason, "said so", cursor.position, now, now + HOUR)
    await books.log.database.write(postpone, failure)


# --- deliveries ---------------------------------------------------------------------------------------------


async def test_all_delivered_is_in_order(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2", expires=NOW + HOUR))
    clock.advance(2)
    await books.settle("b", 2)
    found = await examine(books)
    assert found.answer["summary"] == {"overall": "pass", "pass": 6, "warn": 0, "fail": 0, "skip": 0}
    assert found["/b delivery lag"][1].startswith("at most 2s ")
    assert found["/b event expiry"] == ("pass", "the first event expires in 59m58s")
    assert (found.federation["totalEvents"], found.federation["totalDelivered"]) == (2, 2)
    assert found.federation["maxDeliveryLagSeconds"] == 2.0
    assert found.federation["minExpiresInSeconds"] == 3598.0
    assert "remediationPlan" not in found.answer


@on_sqlite
async def test_a_dead_letter_is_a_failed_delivery_and_one_of_no_use_is_not(
    books: GroupLedger, clock: ManualClock
) -> None:
    await books.publish(draft("e1"), draft("e2", expires=NOW + SECOND), draft("e3"))
    await books.settle("b", 3, parked={1: "invalid", 2: "invalid"})
    assert (await examine(books)).federation["failedDeliveryCount"] == 2
    clock.advance(2)
    found = await examine(books)
    assert found["/b failed deliveries"] == ("fail", "1 event refused by the peer and kept as dead letters")
    assert found["/b dead letters"][0] == "warn"
    assert found["/b expected delivery"][0] == "pass"
    assert found["/b expected delivery"][1].endswith("besides, 1 refused by the peer")


@on_sqlite
async def test_what_waits_is_pending_while_the_link_may_go_on_and_failed_while_it_may_not(books: GroupLedger) -> None:
    await books.publish(draft("e1", expires=NOW + 30 * SECOND), draft("e2"))
    found = await examine(books)
    assert found["/b pending deliveries"] == ("fail", "2 events waiting; the first of them expires in 30s")
    await hold_up(books, LinkState.BACKING_OFF, "unreachable")
    found = await examine(books)
    assert found["/b pending deliveries"][0] == "fail"
    assert found["/b link"][0] == "warn"
    await hold_up(books, LinkState.BLOCKED)
    found = await examine(books)
    assert found["/b pending deliveries"] == (
        "pass",
        "no event can be sent now: 2 events held by a blocked link (unauthorized)",
    )
    assert found["/b failed deliveries"] == ("fail", "2 events held by a blocked link (unauthorized)")
    assert found["/b link"][1] == "blocked since 2026-11-20T12:00:00Z: unauthorized: said so"
    assert (found.federation["failedDeliveryCount"], found.federation["pendingDeliveryCount"]) == (2, 0)


@on_sqlite
async def test_a_delivered_event_does_not_fail_because_another_one_waits(books: GroupLedger) -> None:
    await books.publish(draft("e1", expires=NOW + 30 * SECOND), draft("e2"))
    await books.settle("b", 1)
    found = await examine(books)
    assert found["/b event expiry"] == ("warn", "the first event expires in 30s; it is delivered")
    assert found["/b pending deliveries"] == ("pass", "1 event waiting, for less than 10s on a link that runs")
    await books.publish(draft("e3", expires=NOW + 60 * SECOND))
    assert (await examine(books))["/b event expiry"] == ("fail", "the first undelivered event expires in 1m0s")


@on_sqlite
async def test_a_refresh_that_waits_does_not_make_another_event_fail(books: GroupLedger) -> None:
    """The peer has the event that is about to expire; the one that it does not have never expires."""
    await books.publish(draft("e1", expires=NOW + 20 * SECOND))
    await books.settle("b", 1)
    await books.publish(draft("e1", expires=NOW + 30 * SECOND), draft("e2"))
    found = await examine(books)
    assert found["/b pending deliveries"] == ("pass", "1 event waiting, for less than 10s on a link that runs")
    assert found["/b event expiry"] == ("warn", "the first event expires in 30s; it is delivered")
    assert (found.federation["staleTTLCount"], found.federation["pendingDeliveryCount"]) == (1, 1)
    assert found.federation["minExpiresInSeconds"] == 30.0


@on_sqlite
async def test_a_dead_letter_that_expires_soon_is_about_to_be_lost(books: GroupLedger) -> None:
    await books.publish(draft("e1", expires=NOW + 30 * SECOND), draft("e2", expires=NOW + HOUR))
    await books.settle("b", 2, parked={1: "invalid"})
    found = await examine(books)
    assert found["/b event expiry"] == ("fail", "the first undelivered event expires in 30s")


@on_sqlite
async def test_what_has_expired_does_not_wait(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", expires=NOW + SECOND))
    clock.advance(2)
    found = await examine(books)
    assert found.names == ["g/b delivery summary", "g expected peers"]
    assert found.answer["summary"]["overall"] == "skip"


@on_sqlite
async def test_a_refresh_on_its_way_is_stale_and_not_pending_too(books: GroupLedger) -> None:
    await books.publish(draft("e1", expires=NOW + HOUR), draft("e2", expires=NOW + HOUR))
    await books.settle("b", 2)
    await books.publish(draft("e1", expires=NOW + 2 * HOUR))
    found = await examine(books)
    assert found["/b stale TTL"] == ("warn", "1 of 2 delivered events with an earlier expiry than here")
    assert found["/b pending deliveries"][0] == "pass"
    assert found.federation["staleTTLCount"] == 1
    await books.publish(draft("e2", expires=NOW + 2 * HOUR))
    assert (await examine(books))["/b stale TTL"][0] == "fail"
    await books.settle("b", 4)
    assert (await examine(books))["/b stale TTL"][0] == "pass"


# --- lag ----------------------------------------------------------------------------------------------------


@on_sqlite
async def test_lag_is_judged_by_the_groups_limits(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"))
    clock.advance(85)
    await books.settle("b", 1)
    found = await examine(books)
    time = datetime.fromtimestamp(clock.now() // SECOND, UTC).isoformat()[:19]
    assert found["/b delivery lag"][1].endswith(f"; the last late delivery ended at {time}Z")
    assert found["/b delivery lag"][0] == "warn"
    (slo,) = found.federation["slo"]["groups"]
    assert (slo["defined"], [each["threshold"] for each in slo["violations"]]) == (False, ["lagWarnSeconds=60"])
    text = """
apiVersion: federation.routerd.net/v1alpha1
kind: FederationSLO
metadata: {name: strict}
spec: {groupRef: g, delivery: {lagWarnSeconds: 10, lagFailSeconds: 30, expiresSoonSeconds: 60}}
"""
    await books.call("resources.apply", sources=[{"name": "slo.yaml", "text": text}])
    ended = await examine(books)
    assert ended["/b delivery lag"][0] == "warn", "nothing is late any more"
    await books.publish(draft("e2"))
    clock.advance(10)
    late = await examine(books)
    assert late["/b delivery lag"][0] == "fail"
    for found, severity in ((ended, "warn"), (late, "fail")):
        (slo,) = found.federation["slo"]["groups"]
        assert slo["defined"] is True
        violation = slo["violations"][0]
        assert (violation["threshold"], violation["actual"]) == ("lagFailSeconds=30", "maxDeliveryLagSeconds=85")
        assert violation["severity"] == severity


@on_sqlite
async def test_an_old_observation_is_no_lag(books: GroupLedger) -> None:
    await books.publish(draft("e1", observed=NOW - 10 * HOUR))
    await books.settle("b", 1)
    assert (await examine(books)).federation["maxDeliveryLagSeconds"] == 0


@on_sqlite
async def test_a_peer_that_comes_late_is_no_lag(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    clock.advance(600)
    await books.declare("b", "late")
    clock.advance(5)
    await books.settle("late", 1)
    assert (await examine(books))["/late delivery lag"][1].startswith("at most 5s ")


@on_sqlite
async def test_sending_again_after_the_peer_lost_its_database_is_no_lag(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    await books.publish(draft("e1"), draft("e2"))
    clock.advance(1)
    await books.settle("b", 2)
    clock.advance(600)
    await log.database.write(rewind, link_name("g", "b"), position=2, to=0, now=clock.now())
    await books.settle("b", 1)
    await books.settle("b", 2)
    assert (await examine(books))["/b delivery lag"][1].startswith("at most 1s ")


@on_sqlite
async def test_redelivery_is_no_lag(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 1)
    await books.settle("b", 2, parked={2: "invalid"})
    clock.advance(600)
    await books.call("dead_letters.retry", group="g", all=True)
    await books.repaired("b", 2)
    found = await examine(books)
    assert found.federation["totalDelivered"] == 2
    assert found["/b delivery lag"][0] == "pass"


@on_sqlite
async def test_an_event_that_waits_for_long_is_told(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"))
    clock.advance(90)
    assert (await examine(books))["/b waiting"][0] == "warn"
    clock.advance(90)
    assert (await examine(books))["/b waiting"][0] == "fail"
    await books.call("links.pause", group="g", peer="b", by="ann")
    found = await examine(books)
    assert found["/b waiting"][0] == "warn"
    assert found["/b link"][1] == "paused since 2026-11-20T12:03:00Z by ann"


# --- expected deliveries ------------------------------------------------------------------------------------


async def test_filters_and_origin_decide_what_is_expected(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare("x", typed="types: [t.x]", prefixed='subjectPrefixes: ["10."]', relay="relay: true")
    await books.publish(
        draft("e1", type="t.x"), draft("e2", type="t.y", subject="10.1"), draft("f1", node="far", path="far")
    )
    for node in ("x", "typed", "prefixed", "relay"):
        await books.settle(node, 3)
    found = await examine(books)
    assert found.answer["summary"]["fail"] == 0
    assert [found[f"/{node} expected delivery"][0] for node in ("x", "typed", "prefixed", "relay")] == ["pass"] * 4
    assert found.federation["totalEvents"] == 2 + 1 + 1 + 3
    answers = [check["name"] for check in found.answer["checks"]]
    assert answers == sorted(answers, key=lambda name: name.split()[0]), "peers in order"


@on_sqlite
async def test_an_event_without_proof_is_missing_unless_the_proof_may_have_been_forgotten(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    for number in range(1, 5):
        await books.publish(draft(f"e{number}"))
        clock.advance(10)
        await books.settle("b", number)
    await log.database.write(lambda conn: conn.sqlalchemy.execute(batches.delete().where(batches.c.upto == 3)))
    found = await examine(books, remediation_plan=True)
    assert found["/b expected delivery"] == ("fail", "1 event neither delivered nor pending: e3")
    assert found.federation["missingExpectedPeerCount"] == 1
    assert [each["action"] for each in found.answer["remediationPlan"]["actions"]] == [
        "investigate-missing-delivery-rows"
    ]
    await log.database.write(
        delete_old_rows, RowRetention(ids=HOUR, batches=0, dead_letters=HOUR, receipts=HOUR), now=clock.now() + 1
    )
    found = await examine(books)
    assert found["/b expected delivery"][0] == "pass"
    assert found["/b expected delivery"][1].endswith("4 without stored evidence of their delivery")


@on_sqlite
async def test_an_event_without_proof_is_missing_after_a_repair_of_earlier_events(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    """The batch of a repair is recent and ends at a low position: it does not show since when the ledger is whole."""
    for number in range(1, 5):
        await books.publish(draft(f"e{number}a"), draft(f"e{number}b"))
        clock.advance(10)
        await books.settle("b", 2 * number)
    await log.database.write(lambda conn: conn.sqlalchemy.execute(batches.delete().where(batches.c.upto == 6)))
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1a"])
    await books.repaired("b", 1)
    found = await examine(books)
    assert found["/b expected delivery"] == ("fail", "2 events neither delivered nor pending: e3a, e3b")


@on_sqlite
async def test_an_event_without_proof_is_missing_after_the_link_was_moved_back(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    """The first events were sent again, and only the later batch of them is left: it acknowledges them late."""
    for number in range(1, 5):
        await books.publish(draft(f"e{number}"))
        clock.advance(10)
        await books.settle("b", number)
    clock.advance(10)
    name = link_name("g", "b")
    await log.database.write(lambda conn: rewind(conn, name, position=4, to=0, now=clock.now()))
    await books.settle("b", 1)
    await books.settle("b", 4)
    await log.database.write(lambda conn: conn.sqlalchemy.execute(batches.delete().where(batches.c.id.not_in([2, 5]))))
    found = await examine(books)
    assert found["/b expected delivery"] == ("fail", "2 events neither delivered nor pending: e3, e4")


@on_sqlite
async def test_events_that_end_otherwise_are_told_apart(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", expires=NOW + SECOND), draft("e2"), draft("e3"), draft("e4", node="b"))
    clock.advance(2)
    await books.settle("b", 4, exceptions=[(1, "expired"), (4, "in_path")], parked={2: "invalid"})
    status, detail = (await examine(books))["/b expected delivery"]
    assert status == "pass"
    assert detail.endswith(
        "besides, 1 expired before the peer had them, 1 came from or through the peer, 1 refused by the peer"
    )


@on_sqlite
async def test_only_foreign_events_leave_nothing_to_expect(books: GroupLedger) -> None:
    await books.publish(draft("f1", node="far", path="far"))
    await books.settle("b", 1)
    found = await examine(books)
    assert found["/b delivery summary"][0] == "skip"
    assert found[" expected peers"] == ("skip", "this node emitted none of the newest live events")


@on_sqlite
async def test_a_group_without_peers_and_a_node_without_groups(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    found = await examine(books)
    assert found.answer["checks"][0]["name"] == "expected peers"
    assert found.federation["slo"] == {"groups": []}
    await books.declare()
    await books.publish(draft("e1"))
    assert (await examine(books))[" expected peers"] == ("skip", "the group has no EventPeer")


async def test_groups_come_in_order_and_one_can_be_chosen(books: GroupLedger) -> None:
    for name in ("zeta", "alpha"):
        await books.declare(group=name)
    found = await examine(books)
    assert [each["group"] for each in found.federation["slo"]["groups"]] == ["alpha", "g", "zeta"]
    found = await examine(books, group="zeta")
    assert found.names == ["zeta expected peers"]
    with pytest.raises(NotFound, match="EventGroup nope is not declared"):
        await examine(books, group="nope")


@on_sqlite
async def test_what_retention_removed_before_a_link_reaches_it_is_counted(books: GroupLedger, log: EventLog) -> None:
    """No more are counted than retention has removed from the group: records of other groups have positions, too."""
    await books.declare(group="other")
    await books.declare("b", "c", spec="retention: {maxEvents: 1, undelivered: drop}")
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 1)
    await log.submit(Publish(await log.topic("group:other"), [draft(f"o{n}", group="other") for n in range(9)]))
    await books.publish(draft("e3"), draft("e4"))
    assert (await books.call("events.prune", group="g"))["removed"] == 3
    found = await examine(books)
    assert found["/b lost events"][1].startswith("retention removed at most 3 events that the link had not reached; ")
    assert found["/c lost events"][1].startswith("retention removed at most 3 events that the link had not reached; ")
    await books.settle("b", 13)
    assert "g/b lost events" not in (await examine(books)).names


@on_sqlite
async def test_what_senders_lost_is_told(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    topic = (await log.database.read(read_topic, "group:g")).id
    for reason in ("lost", "taken_back", "lost"):
        await log.database.write(record_gap, topic, "hub", "e", 1, 2, reason, clock.now())
    assert (await examine(books)).codes("warn") == ["inbound-gaps", "inbound-history"]


@on_sqlite
async def test_all_gaps_are_counted_and_the_last_is_dated(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    topic = (await log.database.read(read_topic, "group:g")).id

    def write(conn: Connection) -> None:
        gap = {"topic_id": topic, "node": "hub", "epoch": "e", "after": 1, "upto": 2, "reason": "lost"}
        conn.sqlalchemy.execute(inbound_gaps.insert(), [{**gap, "recorded_at": NOW + number} for number in range(1001)])
        record_gap(conn, topic, "hub", "e", 1, 3, "lost", NOW + HOUR)

    await log.database.write(write)
    status, detail = (await examine(books))["/hub inbound"]
    assert (status, detail) == (
        "warn",
        "the sender lost at most 1,003 events before it could send them: 1,002 gaps, most recently at"
        " 2026-11-20T13:00:00Z",
    )


@on_sqlite
async def test_a_running_node_counts_requests_in_v1_and_reads_its_keys_again(books: GroupLedger) -> None:
    metrics = Metrics()
    books.services = Services(books.log, metrics=metrics)
    assert "g protocol" not in (await examine(books)).names
    metrics.verified("g", "v1")
    metrics.verified("g", "v2")
    metrics.verified("other", "v1")
    found = await examine(books)
    await asyncio.get_running_loop().shutdown_default_executor()  # its thread would outlive the test
    assert found[" keys"] == ("fail", "EventGroup 'g': cannot read /nowhere/secret: No such file or directory")
    assert found[" protocol"] == ("pass", "verified v1 requests since the node started: 1")


# --- subscriptions ------------------------------------------------------------------------------------------

CLAIMS = """
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {name: p}
spec: {executable: /bin/true}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventSubscription
metadata: {name: claims}
spec: {groupRef: g, match: {types: [t]}, trigger: {pluginRef: p, batchWindow: 5s}}
"""
RUNS = "EventSubscription/claims subscription runs"


async def subscribe(books: GroupLedger) -> str:
    """Declare a subscription, and let it be taken notice of; its cursor."""
    await books.call("resources.apply", sources=[{"name": "claims.yaml", "text": CLAIMS}])
    await books.call("subscriptions.resume", subscription="claims")
    return subscription_name("g", "claims")


async def run(books: GroupLedger, status: RunStatus, upto: int, *ids: str) -> None:
    """Write down a run, as the subscription's consumer does."""
    name, now = subscription_name("g", "claims"), books.clock.now()
    new = NewRun(plugin="p", trigger="x", started_at=now, subscription="claims", cursor=name, group="g", event_ids=ids)

    def write(conn: Connection) -> None:
        end_run(conn, begin_run(conn, new), RunEnd(status=status, completed_at=now))

    await books.log.database.write(write)
    cursor = await books.log.database.read(read_cursor, name)
    parked = (
        [DeadLetter(name, upto, cursor.topic_id, ids[0], "failed", "", 3, now)] if status is RunStatus.PARKED else []
    )
    if upto > cursor.position:
        await books.log.settle(Step(name, cursor.position, upto, upto, now, (), parked))


def runs_of(found: Report) -> tuple[str, str]:
    (check,) = [check for check in found.answer["checks"] if check["name"] == RUNS]
    return check["status"], check["detail"]


@on_sqlite
async def test_the_runs_of_a_subscription_are_those_of_its_events(books: GroupLedger, clock: ManualClock) -> None:
    await subscribe(books)
    await books.declare()
    assert runs_of(await examine(books)) == ("skip", "no run of the subscription is counted, and none is due")
    await books.publish(draft("e1"), draft("e2"), draft("x", type="other"), draft("e3"))
    assert runs_of(await examine(books))[0] == "skip", "they are gathered until the window closes"
    clock.advance(6)
    just_begun = "runs of 3 events: 0 succeeded, 0 failed, 3 pending, for less than 10s"
    assert runs_of(await examine(books)) == ("pass", just_begun)
    clock.advance(10)
    assert runs_of(await examine(books)) == ("warn", "runs of 3 events: 0 succeeded, 0 failed, 3 pending")
    await run(books, RunStatus.SUCCEEDED, 2, "e1", "e2")
    await run(books, RunStatus.FAILED, 2, "e3")
    assert runs_of(await examine(books)) == ("warn", "runs of 3 events: 2 succeeded, 0 failed, 1 pending")
    await run(books, RunStatus.PARKED, 4, "e3")
    found = await examine(books, remediation_plan=True)
    assert runs_of(found) == ("fail", "runs of 3 events: 2 succeeded, 1 failed, 0 pending")
    assert found.federation["subscriptionRunsTotal"] == 3
    assert found.federation["slo"]["groups"][0]["violations"][-1] == {
        "check": RUNS,
        "threshold": "maxFailedRuns=0",
        "actual": "failedRuns=1",
        "severity": "fail",
    }
    action = next(each for each in found.answer["remediationPlan"]["actions"] if "targetResource" in each)
    assert (action["action"], action["targetResource"]) == (
        "inspect-failed-subscription-runs",
        "EventSubscription/claims",
    )


@on_sqlite
async def test_an_event_of_two_runs_has_succeeded_once(books: GroupLedger) -> None:
    """A refresh, or a reset of the subscription, runs the plugin again with the same event."""
    await subscribe(books)
    await books.publish(draft("e1"), draft('ä"]'))
    await run(books, RunStatus.SUCCEEDED, 2, "e1", 'ä"]')
    await run(books, RunStatus.SUCCEEDED, 2, "e1")
    assert runs_of(await examine(books)) == ("pass", "runs of 2 events: all succeeded")


@on_sqlite
async def test_only_the_newest_successful_runs_are_counted(books: GroupLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run lists up to 1,024 events, and runs are kept for days: to count them all would hold up every doctor."""
    monkeypatch.setattr("eventd.api.doctor.runs.NEWEST_RUNS", 2)
    await subscribe(books)
    await books.publish(*(draft(f"e{number}") for number in range(1, 5)))
    await run(books, RunStatus.SUCCEEDED, 2, "e1", "e2")
    await run(books, RunStatus.SUCCEEDED, 3, "e3")
    assert runs_of(await examine(books)) == ("pass", "runs of 3 events: all succeeded")
    await run(books, RunStatus.SUCCEEDED, 4, "e4")
    assert runs_of(await examine(books)) == ("pass", "runs of 2 events or more: all succeeded")


@on_sqlite
async def test_runs_of_another_group_are_not_counted(books: GroupLedger) -> None:
    """The subscription was moved here: it has not run yet."""
    await subscribe(books)
    new = NewRun(
        plugin="p", trigger="x", started_at=1, subscription="claims", cursor="c", group="other", event_ids=["e"]
    )

    def write(conn: Connection) -> None:
        end_run(conn, begin_run(conn, new), RunEnd(status=RunStatus.SUCCEEDED, completed_at=2))

    await books.log.database.write(write)
    assert runs_of(await examine(books)) == ("skip", "no run of the subscription is counted, and none is due")


@on_sqlite
async def test_a_backlog_of_more_than_a_page_is_said_to_be_one(books: GroupLedger, clock: ManualClock) -> None:
    """A page ends at 16 MiB, too, with far fewer than 1,000 events."""
    await subscribe(books)
    await books.declare()
    for turn in range(2):
        await books.publish(*(draft(f"e{turn}-{number}", payload={"a": "x" * (1 << 20)}) for number in range(9)))
    clock.advance(16)
    assert runs_of(await examine(books)) == ("warn", "runs of 16 events: 0 succeeded, 0 failed, 16 pending, or more")


@on_sqlite
async def test_the_number_of_dead_letters_is_exact(books: GroupLedger) -> None:
    name = await subscribe(books)
    await books.publish(*(draft(f"e{number}") for number in range(1, COUNTED + 1)))
    topic, now = (await books.log.database.read(read_cursor, name)).topic_id, books.clock.now()
    parked = [DeadLetter(name, at, topic, f"e{at}", "failed", "", 3, now) for at in range(1, COUNTED + 1)]
    await books.log.settle(Step(name, 0, COUNTED, COUNTED, now, (), parked))
    assert runs_of(await examine(books)) == ("fail", "runs of 1,000 events: 0 succeeded, 1,000 failed, 0 pending")


@on_sqlite
async def test_dead_letters_of_a_subscription_leave_as_many_of_the_peers_to_be_read(
    books: GroupLedger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_backlogs, "MOST_DEAD_LETTERS", 40)
    name = await subscribe(books)
    await books.publish(*(draft(f"e{at}", expires=NOW + SECOND if at <= 20 else None) for at in range(1, 41)))
    await books.settle("b", 40, parked=dict.fromkeys(range(1, 41), "invalid"))
    topic, now = (await books.log.database.read(read_cursor, name)).topic_id, clock.now()
    failed = [DeadLetter(name, 40, topic, "e40", "failed", "", 3, now)]
    await books.log.settle(Step(name, 0, 40, 40, now, (), failed))
    clock.advance(2)
    assert (await examine(books)).federation["failedDeliveryCount"] == 20


@on_sqlite
async def test_a_peer_that_cannot_be_read_leaves_the_others_as_they_are(
    books: GroupLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books.declare("b", "c", "d")
    await books.publish(draft("e1"))
    for peer in "bcd":
        await books.settle(peer, 1, parked={1: "invalid"})

    def read(conn: Connection, topic: int, *, cursor: str, **how: Any) -> Any:
        if cursor == link_name("g", "c"):
            raise Unavailable("this row is damaged")
        return read_dead_letters(conn, topic, cursor=cursor, **how)

    monkeypatch.setattr(peer_backlogs, "read_dead_letters", read)
    found = await examine(books)
    assert found["/c delivery summary"] == ("fail", "this row is damaged")
    for peer in "bd":
        assert found[f"/{peer} failed deliveries"][1] == "1 event refused by the peer and kept as dead letters"


@on_sqlite
async def test_what_waits_for_a_plugin_that_cannot_be_run_has_failed(books: GroupLedger) -> None:
    name = await subscribe(books)
    await books.publish(draft("e1"))
    now = books.clock.now()
    failure = Postponement(name, 0, LinkState.BLOCKED, "missing", "no such file", 0, now, now + HOUR)
    await books.log.database.write(postpone, failure)
    found = await examine(books)
    assert runs_of(found) == ("fail", "runs of 1 event: 0 succeeded, 1 failed, 0 pending")
    assert found.codes("fail")[-1] == "subscription-held"
    [remedy] = [check["remedy"] for check in found.answer["checks"] if check.get("code") == "subscription-held"]
    assert remedy.endswith("or at once: routerctl subscription retry claims")
    await books.call("subscriptions.pause", subscription="claims", by="ann")
    found = await examine(books)
    assert runs_of(found)[0] == "warn"
    assert [check["detail"] for check in found.answer["checks"] if check.get("code") == "subscription-held"] == [
        "paused by ann"
    ]


async def test_what_a_subscription_lost_is_told(books: GroupLedger) -> None:
    await subscribe(books)
    await run(books, RunStatus.LOST, 0)
    assert "subscription-lost" in (await examine(books)).codes("warn")


@on_sqlite
async def test_a_part_that_is_set_aside_is_told_with_its_reason(books: GroupLedger) -> None:
    await subscribe(books)
    target = {"apiVersion": "net.example/v1", "kind": "Route", "name": "fallback"}
    for number in range(7):
        result = Result(
            observed_at=NOW, ttl=HOUR, directives=[{"op": "mask", "target": target | {"name": f"r{number}"}}]
        )
        given = form_part(
            owner="EventSubscription/claims",
            events=[event(f"e{number}")],
            result=result,
            plugin="p",
            clamp=False,
            grace=0,
            now=NOW,
        )
        await books.log.database.write(put_part, given, NOW)
    found = await examine(books)
    told = [check for check in found.answer["checks"] if check.get("code") == "part-set-aside"]
    assert [check["status"] for check in told] == ["warn"] * 6, "five of them, and how many more there are"
    assert told[0]["name"].startswith("DynamicConfigPart/EventSubscription/claims/")
    assert told[0]["detail"].startswith("no effect: Route/r")
    assert told[0]["detail"].endswith(", which it masks, is not declared")
    assert (told[-1]["name"], told[-1]["detail"]) == ("g parts", "2 more parts have no effect")


# --- the plan, and carrying it out --------------------------------------------------------------------------


async def test_looking_changes_nothing(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 5)))
    clock.advance(300)
    await books.settle("b", 3, parked={1: "invalid", 2: "invalid"})
    await hold_up(books, LinkState.BLOCKED)
    before = await all_rows(log)
    plan = (await examine(books, remediation_plan=True)).answer["remediationPlan"]
    actions = {each["action"]: each for each in plan["actions"]}
    assert list(actions) == ["align-keys", "check-peer-connectivity", "retry-failed-deliveries"]
    assert actions["retry-failed-deliveries"]["targetPeer"] == "b"
    assert (actions["align-keys"]["safe"], "sha256sum" in actions["align-keys"]["remedy"]) == (False, True)
    again = (await examine(books, remediation_plan=True)).answer["remediationPlan"]
    assert again == plan
    assert await all_rows(log) == before


@on_sqlite
async def test_a_plan_for_a_healthy_node_is_empty(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    found = await examine(books, remediation_plan=True)
    assert found.answer["remediationPlan"] == {"generatedAt": "2026-11-20T12:00:00Z", "actions": []}


@on_sqlite
async def test_fixing_tries_dead_letters_again_and_ends_the_back_off(books: GroupLedger, log: EventLog) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await books.settle("b", 3, parked={1: "invalid", 2: "invalid"})
    await hold_up(books, LinkState.BLOCKED)
    left, (action, changed, result) = await fix(books)
    assert left == ("align-keys", False, "not done: this action needs an operator's approval")
    assert (action, changed) == ("retry-failed-deliveries", True)
    assert result.startswith(
        "2 dead letters are sent again; the link and its repairs, unless paused, are tried again at once; until now it"
        " was blocked"
    )
    (repair,) = await books.repairs("b")
    assert repair.selection["positions"] == [1, 2]
    assert (await log.database.read(read_cursor, link_name("g", "b"))).state is LinkState.RUNNING
    before = await all_rows(log)
    # What is redelivered is in transit, and so is the rest: nothing is left to do.
    assert await fix(books) == []
    assert await all_rows(log) == before


async def test_fixing_does_not_retry_what_the_peer_refuses_each_time(books: GroupLedger, log: EventLog) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await books.settle("b", 4, parked={1: "id_conflict", 2: "invalid"})
    (done,) = await fix(books)
    assert done[:2] == ("retry-failed-deliveries", True)
    assert done[2].startswith("1 dead letter is sent again")
    (repair,) = await books.repairs("b")
    assert repair.selection["positions"] == [2]
    left = (await examine(books, remediation_plan=True)).answer["remediationPlan"]["actions"]
    [proposed] = [each for each in left if "remedy" in each]
    assert (proposed["action"], proposed["safe"]) == ("release-taken-ids", False)
    assert "another event has the id e1 at b (id_conflict)" in proposed["remedy"]
    assert "dead-letters drop --group g NUMBER" in proposed["remedy"]


async def test_fixing_leaves_a_paused_link_paused(books: GroupLedger, log: EventLog) -> None:
    await books.publish(draft("e1", expires=NOW + HOUR))
    await books.settle("b", 1)
    await books.publish(draft("e1", expires=NOW + 2 * HOUR))
    await books.call("links.pause", group="g", peer="b", by="ann")
    before = await all_rows(log)
    ((action, changed, result),) = await fix(books)
    assert (action, changed) == ("force-repush-stale-ttl", False)
    assert result.startswith("the link is paused by ann, and stays paused")
    assert await all_rows(log) == before


@on_sqlite
async def test_fixing_lets_refreshes_overtake_what_else_waits(books: GroupLedger, log: EventLog) -> None:
    await books.publish(draft("e1", expires=NOW + HOUR), draft("e2"))
    await books.settle("b", 2)
    await books.publish(draft("e3"), draft("e1", expires=NOW + 2 * HOUR), draft("e4"))
    assert await fix(books) == [("force-repush-stale-ttl", True, "1 refresh is sent before the rest of the backlog")]
    (repair,) = await books.repairs("b")
    assert repair.selection["positions"] == [4]
    before = await all_rows(log)
    assert (await fix(books))[0][1:] == (
        False,
        "the link is running, the last success was at 2026-11-20T12:00:00Z; no refresh can be sent before the backlog",
    )
    assert await all_rows(log) == before
    await books.repaired("b", 4)
    found = await examine(books)
    assert found["/b stale TTL"][0] == "pass"
    await books.settle("b", 5)
    assert (await examine(books)).answer["summary"]["overall"] == "pass"


@on_sqlite
async def test_fixing_what_needs_a_person_changes_nothing(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    for number in range(1, 4):
        await books.publish(draft(f"e{number}"))
        clock.advance(10)
        await books.settle("b", number)
    await log.database.write(lambda conn: conn.sqlalchemy.execute(batches.delete().where(batches.c.upto == 2)))
    before = await all_rows(log)
    ((action, changed, result),) = await fix(books)
    assert (action, changed) == ("investigate-missing-delivery-rows", False)
    assert "e2" in result
    assert await all_rows(log) == before


@on_sqlite
async def test_an_action_that_fails_does_not_stop_the_next(books: GroupLedger) -> None:
    await hold_up(books, LinkState.BLOCKED)
    actions = [Action("check-peer-connectivity", "g", peer, "", "why", safe=True) for peer in ("gone", "b")]
    gone, found = await carry_out(books.services, actions)
    assert gone == {
        "action": "check-peer-connectivity",
        "targetPeer": "gone",
        "targetGroup": "g",
        "changed": False,
        "result": "not done: group g has no peer gone (its peers: b)",
    }
    assert found["changed"] is True


@on_sqlite
async def test_what_is_not_safe_is_left_to_a_person(books: GroupLedger, log: EventLog) -> None:
    before = await all_rows(log)
    (done,) = await carry_out(books.services, [Action("configure-peer-endpoint", "g", "b", "", "why", safe=False)])
    assert (done["changed"], done["result"]) == (False, "not done: this action needs an operator's approval")
    assert await all_rows(log) == before


# --- the reference ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[4]
_CODE = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"')
_STATES = {"backing-off"}
_NO_CHECKS = {"plan.py", "fixing.py", "operations.py", "report.py"}
"""They have the names of actions."""


def test_every_code_is_in_the_reference_and_no_other() -> None:
    folder = ROOT / "eventd/api/doctor"
    sources = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")) if path.name not in _NO_CHECKS]
    given = {code for source in sources for code in _CODE.findall(source)} - _STATES
    page = (ROOT / "docs/reference/doctor.md").read_text(encoding="utf-8")
    checks = page[page.index("## Checks") : page.index("## What is not counted")]
    assert given == {line.split("`")[1] for line in checks.splitlines() if line.startswith("| `") and "-" in line}


def test_every_action_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/doctor.md").read_text(encoding="utf-8")
    plan = page[page.index("## The plan") :]
    rows = [line.split("|") for line in plan.splitlines() if line.startswith("| `")]
    assert {row[1].strip(" `"): (row[2].strip(" `"), row[3].strip() == "yes") for row in rows} == ACTIONS


# --- the node itself ----------------------------------------------------------------------------------------


@on_sqlite
async def test_a_node_that_is_not_ready_fails(books: GroupLedger) -> None:
    told = {"database": "ok", "group g": "cannot listen", "group h": "keys"}

    async def readiness() -> dict[str, str]:
        return told

    books.services = Services(books.log, readiness=readiness)
    found = await examine(books)
    (check,) = [check for check in found.answer["checks"] if check["name"] == "node readiness"]
    assert (check["status"], check["code"]) == ("fail", "node-readiness")
    assert check["detail"] == "the node is not ready: group g: cannot listen; group h: keys"
    assert found.answer["summary"]["overall"] == "fail"
    found = await examine(books, group="g")
    assert [check["detail"] for check in found.answer["checks"] if check["status"] == "fail"] == [
        "the node is not ready: group g: cannot listen"
    ]
    told["group g"] = "ok"
    assert "node readiness" not in (await examine(books, group="g")).names


@on_sqlite
async def test_records_that_were_deleted_by_hand_are_reported_with_their_seqs(
    books: GroupLedger, log: EventLog
) -> None:
    for number in range(6):
        await books.publish(draft(f"e{number}"))
    assert _codes(await examine(books)).isdisjoint({"records-lost"})
    await _lose(log, 1, 3, 4, 6)
    status, detail = (await examine(books))[" log"]
    assert status == "fail"
    lost = "the log has lost 4 events, which retention has not removed: seq 6, 3-4, 1"
    assert detail == f"{lost}; 4 of them are not stored again"
    await books.publish(draft("e0"), draft("e2"), draft("e3"))
    assert (await examine(books))[" log"] == ("fail", f"{lost}; 1 of them are not stored again")
    await books.publish(draft("e5"))
    assert (await examine(books))[" log"] == ("warn", f"{lost}; none of them is missing any more")


@on_sqlite
async def test_the_lost_records_of_all_ranges_are_counted_until_they_are_stored_again(
    books: GroupLedger, log: EventLog
) -> None:
    names = [f"e{number}" for number in range(15)]
    for name in names:
        await books.publish(draft(name))
    await _lose(log, *range(1, 16, 2))
    lost = "the log has lost 8 events, which retention has not removed: seq 15, 13, 11, 9, 7, 3 more ranges"
    await books.publish(*(draft(name) for name in names[4::2]))
    assert (await examine(books))[" log"] == ("fail", f"{lost}; 2 of them are not stored again"), "of the oldest ranges"
    await books.publish(draft("e0"), draft("e2"))
    assert (await examine(books))[" log"] == ("warn", f"{lost}; none of them is missing any more")


async def test_lost_records_are_found_over_several_steps(
    books: GroupLedger, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_records, "BLOCKS_PER_STEP", 2)
    for number in range(7):
        await books.publish(draft(f"e{number}"))
    await _lose(log, 1, 3, 6, 7)
    assert (await examine(books))[" log"][1].startswith(
        "the log has lost 4 events, which retention has not removed: seq 6-7, 3, 1; 4"
    )


@on_sqlite
async def test_what_retention_has_removed_is_not_lost(books: GroupLedger, log: EventLog) -> None:
    topic = await log.topic("group:g")
    for number in range(4):
        await books.publish(draft(f"e{number}"))
    limits = EvictionLimits(max_records=2, keep_undelivered=False)
    assert (await log.database.write(lambda conn: evict(conn, topic, limits, now=NOW))).records == 2
    assert _codes(await examine(books)).isdisjoint({"records-lost"})


async def _lose(log: EventLog, *seqs: int) -> None:
    """Delete the blocks that begin with these seqs, as a damage to the database might."""
    topic = await log.topic("group:g")

    def delete(conn: Connection) -> None:
        for seq in seqs:
            assert execute(conn, "DELETE FROM blocks WHERE topic_id = ? AND seq = ?", (topic, seq)) == 1

    await log.database.write(delete)


def _codes(found: Report) -> set[str]:
    return {check.get("code", "") for check in found.answer["checks"]}
