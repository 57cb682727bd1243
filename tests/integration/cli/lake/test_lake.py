"""routerctl lake: how far a node has shipped, the content and problems of a lake, and compaction by hand."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.api.doctor.lake import check_shipping
from eventd.cli.lake.lake import nothing_shipped
from eventd.egress.lake.sink import enrol
from eventd.lake.layout import day_of
from eventd.lake.ledger_files import DAY
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.log.cursors.cursors import LinkState
from eventd.log.cursors.steps import Postponement, Step, apply_step, postpone
from eventd.runtime.clock import SECOND, SystemClock
from eventd.store.engine.database import Connection, Database
from tests.integration.cli.conftest import Control
from tests.support.fork_server import spawn
from tests.support.lakes import EPOCH, ship, ship_state
from tests.support.processes import CONTROL

BEGUN = SystemClock().now() - 10 * DAY


def hold_up(conn: Connection, state: LinkState, now: int) -> None:
    enrol(conn, ["onprem"], "", now)
    for book in Ledger:
        told = "cannot write x in the lake at /lake: No space left on device"
        name, retry = f"segments/onprem/{book}", now + 60 * SECOND
        postpone(conn, Postponement(name, 0, state, "lake_unavailable", told, 0, now, retry))


@pytest.fixture
def written(routerctl: Control, routerctl_url: str) -> Iterator[Database]:
    """The database behind `routerctl`, with the group edge."""
    routerctl.edge()
    database = Database(routerctl_url)
    yield database
    database.close()


def test_without_a_lake_nothing_is_shipped(routerctl: Control) -> None:
    assert routerctl("lake", "status", "-o", "json").json == []
    assert "run the node with EVENTD_LAKE" in routerctl("lake", "status").err
    assert "lake" not in routerctl("doctor").out


def test_what_holds_shipping_up_is_shown_with_every_book(routerctl: Control, written: Database) -> None:
    routerctl("fed", "event", "emit", "--type", "t", "--id", "e1")
    written.write_now(hold_up, LinkState.BACKING_OFF, SystemClock().now())
    rows = routerctl("lake", "status", "-o", "json").json
    assert [row["book"] for row in rows] == [str(book) for book in Ledger]
    assert (rows[0]["node"], rows[0]["upto"], rows[0]["waiting"]) == ("onprem", 0, 1)
    assert (rows[0]["state"], rows[0]["reason"]) == ("backing-off", "lake_unavailable")
    table = routerctl("lake", "status")
    assert table.lines[0].split()[:6] == ["NODE", "LEDGER", "STATE", "REASON", "UPTO", "WAITING"]
    assert table.lines[1].endswith("cannot write x in the lake at /lake: No space left on device")
    assert routerctl("lake", "status", "-o", "name").lines[0] == "onprem/events"


@pytest.mark.parametrize(
    ("state", "code", "status", "ending"),
    [("backing-off", "lake-down", "warn", 0), ("blocked", "lake-blocked", "fail", 4)],
)
def test_doctor_tells_what_holds_it_up(
    routerctl: Control, written: Database, state: str, code: str, status: str, ending: int
) -> None:
    written.write_now(hold_up, LinkState(state), SystemClock().now())
    found = routerctl("doctor", "-o", "json", code=ending).json["checks"]
    (check,) = [one for one in found if one["name"] == "lake shipping"]
    assert (check["code"], check["status"]) == (code, status)
    assert "No space left on device" in check["detail"]
    assert all(
        one["name"] != "lake shipping" for one in routerctl("doctor", "--group", "edge", "-o", "json").json["checks"]
    )


def test_doctor_is_content_with_what_is_shipped(routerctl: Control, written: Database) -> None:
    written.write_now(enrol, ["onprem"], "id", SystemClock().now())
    found = routerctl("doctor", "-o", "json").json["checks"]
    (check,) = [one for one in found if one["name"] == "lake shipping"]
    assert (check["code"], check["status"], check["detail"]) == ("lake-shipping", "pass", "all rows are in the lake")


def test_rows_of_which_none_was_ever_shipped_are_a_warning(routerctl: Control, written: Database) -> None:
    """The shipping process uses idle time only: on a busy machine its first step may take long."""
    written.write_now(enrol, ["onprem"], "", SystemClock().now())
    assert "note:" not in routerctl("lake", "status").err, "no row waits"
    routerctl("fed", "event", "emit", "--type", "t", "--id", "e1")
    remark = routerctl("lake", "status").err
    assert "no row has been shipped yet" in remark
    assert "EVENTD_LAKE_NICE" in remark
    (check,) = [one for one in routerctl("doctor", "-o", "json").json["checks"] if one["name"] == "lake shipping"]
    assert (check["code"], check["status"]) == ("lake-not-begun", "warn")
    assert check["detail"] == "1 row waiting, and no row has been shipped yet"
    step = Step("segments/onprem/events", 0, 1, 1, SystemClock().now())
    written.write_now(apply_step, step)
    assert "note:" not in routerctl("lake", "status").err


@pytest.mark.parametrize(("expected", "codes"), [(True, ["lake-not-begun"]), (False, [])])
def test_doctor_warns_while_the_process_of_a_node_with_a_lake_has_not_reported(
    expected: bool, codes: list[str]
) -> None:
    assert [check.code for check in check_shipping([], expected=expected)] == codes


@pytest.mark.parametrize(("configured", "advice"), [(True, "EVENTD_LAKE_NICE"), (False, "EVENTD_LAKE and")])
def test_a_node_with_a_lake_is_not_told_to_set_one(configured: bool, advice: str) -> None:
    """Its ledgers are known only when the shipping process has reported for the first time."""
    assert advice in nothing_shipped({"configured": configured, "lake": "", "books": []})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Two days of a node, three segments each."""
    storage, path = connect(str(tmp_path / "lake")), str(tmp_path / "lake")
    for number in range(6):
        ship(storage, 10 * number, 10 * number + 10, at=BEGUN + number // 3 * DAY)
    ship_state(storage, 60)
    return path


def test_a_lake_is_checked(control: Control, lake: str) -> None:
    found = control("lake", "check", "--lake", lake)
    headers = ["NODE", "LEDGER", "SEGMENTS", "ARCHIVED", "ROWS", "BYTES", "FIRST_DAY", "LAST_DAY", "REPORTED"]
    assert found.lines[0].split() == headers
    assert found.lines[1].split()[:5] == ["site-a", "events", "6", "0", "60"]
    assert found.lines[1].split()[6:] == [day_of(BEGUN), day_of(BEGUN + DAY), "2026-11-20T12:00:00Z"]
    assert control("lake", "check", "--lake", lake, "-o", "json").json["troubles"] == []


def test_the_lake_of_the_settings_is_the_one_that_is_meant(
    control: Control, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "add --lake FOLDER, or set EVENTD_LAKE" in control("lake", "check", code=1).err
    monkeypatch.setenv("EVENTD_LAKE", lake)
    assert "site-a" in control("lake", "check").out


def test_lost_rows_end_with_4_and_their_numbers(control: Control, lake: str) -> None:
    lost = survey(connect(lake)).segments[1].place
    connect(lake).delete([lost.manifest, lost.data])
    found = control("lake", "check", "--lake", lake, code=4)
    assert "corrupt" in found.lines[-1]
    assert found.lines[-1].split()[3:5] == ["10", "20"]
    (trouble,) = json.loads(control("lake", "check", "--lake", lake, "-o", "json", code=4).out)["troubles"]
    assert (trouble["kind"], trouble["node"], trouble["book"], trouble["epoch"]) == (
        "corrupt",
        "site-a",
        "events",
        EPOCH,
    )
    assert "Traceback" not in found.err


def test_a_new_epoch_is_told_and_is_no_failure(control: Control, lake: str) -> None:
    ship_state(connect(lake), 0, epoch="b" * 16, began_at=BEGUN + 2 * DAY, as_of=BEGUN + 2 * DAY)
    assert "a new epoch" in control("lake", "check", "--lake", lake).out


def test_what_is_no_lake_is_told(control: Control, tmp_path: Path) -> None:
    assert "there is no lake at" in control("lake", "check", "--lake", str(tmp_path / "none"), code=3).err
    (tmp_path / "eventd-lake.json").write_text('{"schema": 3}')
    assert "schema version 3" in control("lake", "check", "--lake", str(tmp_path), code=1).err
    assert "no installed package can access the lake" in control("lake", "check", "--lake", "nowhere://x", code=1).err


def test_days_are_compacted_by_hand(control: Control, lake: str) -> None:
    assert control("lake", "compact", "--lake", lake, "--after", "36500d").lines[1].split() == ["0", "0"]
    assert control("lake", "compact", "--lake", lake, "-o", "json").json == {"compacted": 6, "removed": 0}
    assert control("lake", "check", "--lake", lake).lines[1].split()[2:5] == ["2", "2", "60"]
    assert "is not a duration" in control("lake", "compact", "--lake", lake, "--after", "soon", code=2).err


@pytest.mark.parametrize(
    "command", [("compact",), ("retain", "--keep", "1d", "--yes"), ("retain", "--keep", "1d", "--dry-run")]
)
def test_a_node_that_the_lake_does_not_know_is_named(control: Control, lake: str, command: tuple[str, ...]) -> None:
    told = control("lake", *command, "--lake", lake, "--node", "site-a", "--node", "zz", code=3).err
    assert f"the lake at {lake} has no data of a node zz (`routerctl lake check` lists its nodes)" in told


def test_old_days_expire_by_hand_and_are_there_for_another_day(
    control: Control, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain = ("lake", "retain", "--lake", lake, "-o", "json", "--keep")
    assert control(*retain, "36500d").json == {"expired": 0, "removed": 0}
    for _ in range(2):
        planned = control(*retain, "5d", "--dry-run").json
        assert [(row["node"], row["expired"], row["removed"]) for row in planned] == [("site-a", 6, 0)]
    assert control(*retain, "5d").json == {"expired": 6, "removed": 0}
    assert control(*retain, "5d").json == {"expired": 0, "removed": 0}
    assert control("lake", "check", "--lake", lake).lines[1].split()[2:5] == ["6", "0", "60"]
    tomorrow = SystemClock().now() + DAY
    monkeypatch.setattr("eventd.cli.lake.lake._now", lambda: tomorrow)
    planned = control(*retain, "6d", "--dry-run").json
    assert [(row["expired"], row["removed"], row["lastDay"]) for row in planned] == [(0, 6, day_of(BEGUN + DAY))]
    assert control(*retain, "6d").json == {"expired": 0, "removed": 6}
    assert control("lake", "check", "--lake", lake, "-o", "json").json == {
        "lake": survey(connect(lake)).head.id,
        "books": [],
        "troubles": [],
    }


def test_a_rehearsal_says_that_nothing_was_changed(control: Control, lake: str) -> None:
    found = control("lake", "retain", "--lake", lake, "--keep", "5d", "--dry-run")
    assert found.lines[0].split() == ["NODE", "LEDGER", "EXPIRED", "REMOVED", "LAST_DAY"]
    assert "nothing was changed" in found.err


@pytest.mark.parametrize(
    ("options", "answer", "code", "marked"),
    [((), b"\n", 1, 0), ((), b"y\n", 0, 30), (("--yes",), b"", 0, 30), (("--dry-run",), b"", 0, 0)],
)
def test_on_a_terminal_it_asks_first(
    lake: str, tmp_path: Path, options: tuple[str, ...], answer: bytes, code: int, marked: int
) -> None:
    keyboard, terminal = os.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, keyboard)
        stack.callback(os.close, terminal)
        os.write(keyboard, answer)
        keep = SystemClock().now() - BEGUN - DAY  # of the two days, the first
        command = ["lake", "retain", "--lake", lake, "--keep", f"{keep // SECOND}s", *options]
        pipe = subprocess.PIPE
        done = spawn([*CONTROL, *command], env=os.environ, stdin=terminal, stdout=pipe, stderr=pipe, cwd=tmp_path)
        told = done.communicate(timeout=60)[1].decode()
    assert done.returncode == code, told
    assert survey(connect(lake)).nodes[0].segments[Ledger.EVENTS].after == marked
    asked = "site-a, events: mark 3 segments as expired, delete 0 segments\nContinue? [y/N]" in told
    assert asked == (not options)
    assert ("nothing was changed" in told) == (marked == 0)


def test_a_node_that_is_out_of_service_is_closed(control: Control, lake: str) -> None:
    ship_state(connect(lake), 60, began_at=BEGUN, as_of=BEGUN + 2 * DAY)
    assert "no node site-b" in control("lake", "close", "--lake", lake, "--node", "site-b", code=3).err
    found = control("lake", "close", "--lake", lake, "--node", "site-a")
    assert found.lines[0].split() == ["NODE", "COMPLETE_UNTIL", "CLOSED_AT"]
    (state,) = survey(connect(lake)).nodes
    assert state.closed_at > BEGUN
    ship_state(connect(lake), 60, began_at=BEGUN, as_of=SystemClock().now())
    told = control("lake", "close", "--lake", lake, "--node", "site-a", code=1).err
    assert "it may be running (stop the node, and wait 5m0s)" in told
