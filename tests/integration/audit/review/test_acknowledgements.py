"""Acknowledgements in a lake: none is lost or changed, whatever is written at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventd.audit.report.findings import Finding, Kind
from eventd.audit.review import acknowledgements
from eventd.audit.review.acknowledgements import Acknowledgement, acknowledge, read_acknowledgements, withdraw
from eventd.errors import Conflict, Invalid, NotFound
from eventd.lake.reader import survey
from eventd.lake.storage import Storage, connect, make_lake
from eventd.runtime.chance import SYSTEM

LOST = Finding(Kind.MISSING, "edge", "a", "b", 4, 6, ("e4", "e5", "e6"))


@pytest.fixture(params=["folder", "object store"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    place = str(tmp_path / "lake") if request.param == "folder" else f"memory://{tmp_path.name}"
    storage = connect(place)
    make_lake(storage, 0, SYSTEM)
    return storage


def add(lake: Storage, reason: str = "known", now: int = 5) -> Acknowledgement:
    return acknowledge(lake, [LOST], by="ann", reason=reason, now=now, chance=SYSTEM)


def test_an_acknowledgement_is_read_as_it_was_made(lake: Storage) -> None:
    later, sooner = add(lake, now=9), add(lake, now=7)
    found = read_acknowledgements(lake)
    assert found == ([sooner, later], [], {})
    assert (later.findings, later.events, later.by, later.reason) == ((LOST,), 3, "ann", "known")


def test_many_writers_at_once_lose_none(lake: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda number: add(lake, f"number {number}"), range(40))]
    assert {one.id for one in read_acknowledgements(lake).active} == {one.id for one in made}
    assert len({one.id for one in made}) == 40


def test_an_acknowledgement_that_readers_would_refuse_is_not_written(
    lake: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(lake)
    monkeypatch.setattr(acknowledgements, "MOST_TEXT", len(lake.read(f"acknowledgements/{made.id}.json")))
    second = add(lake)
    with pytest.raises(Invalid, match="the acknowledgement has more than 0 MiB"):
        add(lake, "known for long")
    assert {one.id for one in read_acknowledgements(lake).active} == {made.id, second.id}


def test_a_withdrawal_keeps_what_it_ends(lake: Storage) -> None:
    made, other = add(lake), add(lake)
    end = withdraw(lake, made.id, by="bob", reason="sent again", now=8)
    assert read_acknowledgements(lake) == ([other], [(made, end)], {})
    with pytest.raises(Conflict, match="bob has withdrawn"):
        withdraw(lake, made.id, by="cy", reason="again", now=9)
    with pytest.raises(NotFound, match="has no acknowledgement 00"):
        withdraw(lake, "00", by="cy", reason="again", now=9)


def test_a_damaged_file_does_not_count_and_is_named(lake: Storage) -> None:
    made, moved = add(lake), add(lake)
    text = lake.read(f"acknowledgements/{moved.id}.json")
    lake.put("acknowledgements/other.json", text)
    lake.put(f"acknowledgements/{moved.id}.json", b"not JSON")
    lake.put("acknowledgements/notes.txt", b"not read")
    found = read_acknowledgements(lake)
    assert found.active == [made]
    assert found.unreadable == {
        f"acknowledgements/{moved.id}.json": "is not JSON, or has no field `schema`",
        "acknowledgements/other.json": "has the id of another file",
    }


@pytest.mark.parametrize("at", [2**62, -(2**62), 2**70])
def test_a_time_that_no_calendar_has_does_not_count(lake: Storage, at: int) -> None:
    made, odd = add(lake), add(lake)
    withdraw(lake, made.id, by="bob", reason="sent again", now=8)
    for path in (f"acknowledgements/{odd.id}.json", f"acknowledgements/{made.id}-withdrawn.json"):
        lake.put(path, json.dumps({**json.loads(lake.read(path)), "at": at}).encode())
    found = read_acknowledgements(lake)
    assert (found.active, found.withdrawn) == ([made], [])
    assert set(found.unreadable) == {
        f"acknowledgements/{odd.id}.json",
        f"acknowledgements/{made.id}-withdrawn.json",
    }


@pytest.mark.parametrize(("last", "count"), [(2**62, 2**62), (6, 2**62), (6, 4), (10**15, 3)])
def test_holes_of_more_rows_than_numbers_do_not_count(lake: Storage, last: int, count: int) -> None:
    hole = acknowledge(
        lake,
        [Finding(Kind.ERASED, "edge", "c", "", 4, last, (), count=count)],
        by="ann",
        reason="all that comes",
        now=1,
        chance=SYSTEM,
    )
    assert read_acknowledgements(lake) == (
        [],
        [],
        {f"acknowledgements/{hole.id}.json": "has a finding with numbers that no finding has"},
    )


@pytest.mark.parametrize(("by", "reason"), [("", "known"), ("ann", " \n"), ("a" * 101, "known"), ("ann", "r" * 1001)])
def test_a_name_and_a_reason_are_required(lake: Storage, by: str, reason: str) -> None:
    with pytest.raises(Invalid, match=r"--(by|reason) has [\d,]+ characters"):
        acknowledge(lake, [LOST], by=by, reason=reason, now=1, chance=SYSTEM)
    assert read_acknowledgements(lake) == ([], [], {})


def test_the_ledgers_and_the_state_of_the_lake_do_not_depend_on_them(lake: Storage) -> None:
    before = survey(lake)
    made = add(lake)
    assert survey(lake) == before
    assert json.loads(lake.read(f"acknowledgements/{made.id}.json"))["schema"] == 1
