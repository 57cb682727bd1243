"""routerctl doctor: the same report on a database and on an API, as a table and as JSON, and its exit status."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from eventd.cli.gateway.lock import serving_lock
from eventd.cli.node.doctor import CHECKS
from eventd.store.engine.database import Database
from tests.integration.cli.conftest import EDGE, Control
from tests.integration.cli.federation.test_flow import Consumer
from tests.integration.cli.federation.test_watching import Start, Watch

SLO = """
apiVersion: federation.routerd.net/v1alpha1
kind: FederationSLO
metadata: {name: strict}
spec: {groupRef: edge, delivery: {lagWarnSeconds: 10, lagFailSeconds: 30, expiresSoonSeconds: 7200}}
"""
NOBODY = "note: no node serves this database now; this is the state that the last node left\n"
FAILED = "doctor found failing checks\n"


# The report is made below the commands, and tested there on both databases: these tests are about what is printed.
report_on_sqlite = pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)


@pytest.fixture
def edge(routerctl: Control) -> Control:
    """A node with the group edge, the peer cloud, and the events e1 to e3."""
    routerctl.edge()
    for number in range(1, 4):
        routerctl("fed", "event", "emit", "--type", "t", "--id", f"e{number}", "--ttl", "1h")
    return routerctl


@pytest.fixture
def consumer(edge: Control, routerctl_url: str) -> Consumer:
    """The peer's consumer, on the database behind `routerctl`."""
    return Consumer(routerctl_url)


def test_a_warning_ends_with_0_and_a_failure_with_4(edge: Control, consumer: Consumer) -> None:
    assert edge("doctor", "federation").lines[0] == "DOCTOR  PASS  pass=5  warn=0  fail=0  skip=1"
    edge("fed", "pause", "cloud")
    found = edge("doctor", "federation")
    assert found.lines[0] == "DOCTOR  WARN  pass=4  warn=2  fail=0  skip=1"
    assert found.lines[1].split() == [column.header for column in CHECKS if not column.wide]
    pending = next(line for line in found.lines if "pending deliveries" in line)
    assert "3 events waiting" in pending
    assert "routerctl federation links --group edge --peer cloud" in pending
    assert found.err.replace(NOBODY, "") == ""
    edge("fed", "resume", "cloud")
    edge("apply", "-f", edge.file(SLO, "slo.yaml"))
    failed = edge("doctor", code=4)
    assert failed.lines[0].startswith("DOCTOR  FAIL  ")
    assert failed.err.replace(NOBODY, "") == FAILED
    consumer.settle(3)
    assert edge("doctor").lines[0].startswith("DOCTOR  WARN  "), "they are delivered, and expire soon"


@report_on_sqlite
def test_the_report_as_json(edge: Control, consumer: Consumer) -> None:
    consumer.settle(2, refused=2)
    found = edge("doctor", "federation", "-o", "json", code=4)
    assert list(found.json) == ["summary", "checks", "federation"]
    assert found.json["summary"]["overall"] == "fail"
    assert found.err == FAILED
    failed = next(check for check in found.json["checks"] if check.get("code") == "failed-deliveries")
    assert failed == {
        "area": "federation",
        "code": "failed-deliveries",
        "name": "edge/cloud failed deliveries",
        "status": "fail",
        "detail": "1 event refused by the peer and kept as dead letters",
        "remedy": "see why: routerctl federation dead-letters list --group edge --peer cloud",
        "group": "edge",
        "peer": "cloud",
    }
    assert found.json["federation"]["slo"]["groups"][0]["violations"][0]["threshold"] == "failedDeliveryCount=0"
    assert "overall: fail" in edge("doctor", "-o", "yaml", code=4).out
    assert "edge/cloud failed deliveries" in edge("doctor", "-o", "name", code=4).lines
    assert "failed-deliveries" in edge("doctor", "-o", "wide", code=4).out


@report_on_sqlite
def test_the_plan_is_there_when_it_is_asked_for_and_changes_nothing(edge: Control, consumer: Consumer) -> None:
    consumer.settle(3, refused=3)
    plan = edge("doctor", "--remediation-plan", "-o", "json", code=4).json["remediationPlan"]
    assert [(each["action"], each["targetPeer"], each["safe"]) for each in plan["actions"]] == [
        ("retry-failed-deliveries", "cloud", True)
    ]
    told = edge("doctor", "--remediation-plan", code=4)
    assert any(line.startswith("retry-failed-deliveries") for line in told.lines)
    assert len(edge("fed", "dead-letters", "list", "-o", "json").json) == 1


def test_fixing_says_what_it_did_and_does_it_once(edge: Control, consumer: Consumer) -> None:
    consumer.settle(3, refused=3)
    found = edge("doctor", "--fix", "-o", "json", code=4)
    assert "remediationPlan" not in found.json
    (done,) = found.json["fix"]
    assert (done["action"], done["targetPeer"], done["changed"]) == ("retry-failed-deliveries", "cloud", True)
    assert edge("fed", "dead-letters", "list", "-o", "json").json == []
    again = edge("doctor", "--fix")
    assert [line.split()[:5] for line in again.lines if line.startswith("investigate")] == [
        ["investigate-pending-deliveries", "edge", "cloud", "-", "no"]
    ]


@report_on_sqlite
def test_one_group_can_be_chosen(edge: Control) -> None:
    edge("apply", "-f", edge.file(EDGE.split("---")[0].replace("edge}", "alone}"), "alone.yaml"))
    assert edge("doctor", "--group", "alone", "-o", "name").lines == ["alone expected peers"]
    unknown = edge("doctor", "--group", "aloen", code=3)
    assert unknown.err == "error: EventGroup aloen is not declared (did you mean alone?)\n"


@report_on_sqlite
def test_what_is_asked_wrongly_is_said(edge: Control) -> None:
    assert edge("doctor", "nothing", code=1).err == "error: area must be federation, or empty for all, not 'nothing'\n"
    assert edge("doctor", "--watch", "--fix", code=2).err.startswith("error: --watch and --fix exclude each other")
    assert edge("doctor", "federation", "more", code=2).out == ""


def test_a_database_that_is_not_there_is_no_report(control: Control) -> None:
    found = control("doctor", code=3)
    assert (found.out, "eventd.db does not exist" in found.err) == ("", True)


@pytest.fixture
def start(control: Control) -> Iterator[Start]:
    started: list[Watch] = []

    def run(*arguments: str) -> Watch:
        started.append(Watch(control.folder, *arguments))
        return started[-1]

    yield run
    for watch in started:
        watch.close()


def test_a_database_that_nobody_serves_is_noted_beside_the_table(control: Control, migrated_sqlite_url: str) -> None:
    here = ("doctor", "--database", migrated_sqlite_url)
    assert control(*here).err == NOBODY
    assert control(*here, "-o", "json").err == ""
    with closing(Database(migrated_sqlite_url)) as database, serving_lock(database):
        assert control(*here).err == ""


def test_watching_reports_again_when_a_check_changes(control: Control, start: Start) -> None:
    control.edge()
    watch = start("doctor", "--watch", "-o", "json")
    assert json.loads(watch.line())["summary"]["overall"] == "skip"
    control("fed", "event", "emit", "--type", "t")
    assert json.loads(watch.line())["summary"]["overall"] == "pass"
    code, err = watch.interrupt()
    assert (code, err) == (0, "")
    assert watch.process.returncode != -signal.SIGINT
