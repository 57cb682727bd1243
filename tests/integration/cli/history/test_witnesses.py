"""The commands about witnesses: what they list, show, reset and rotate, on a database that has witnessed a fork."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from eventd.cli.gateway.session import Session
from eventd.log.core.eventlog import EventLog
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.keys import Pins
from eventd.log.witnesses.offers import OfferFrom
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.engine.statements import insert_row
from eventd.witnessing.node_keys import KEY_FILE, load_history_keys
from federation.history.witnessing import KeySource, Offer
from tests.integration.cli.conftest import Control
from tests.support.declared import declare, group
from tests.support.growing_tree import SECOND, GrowingTree
from tests.support.stopped_nodes import ship

HONEST, FORKED = (GrowingTree(node="cloud", group="edge").grow(text) for text in ("x", "y"))


@pytest.fixture
def control(control: Control, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_url: str) -> Control:
    """`routerctl` on the database of a node whose peer cloud has forked its tree."""
    monkeypatch.setenv("EVENTD_DATABASE_URL", migrated_sqlite_url)
    control.edge()
    asyncio.run(witness(migrated_sqlite_url, HONEST.offer(), FORKED.offer(1)))
    return control


async def witness(
    url: str, *offers: Offer, source: KeySource = KeySource.SHARED, pins: Pins = MappingProxyType({})
) -> None:
    with closing(Database(url)) as database:
        log = await EventLog.open(database, SystemClock())
        topic = await log.topic("group:edge")
        for offer in offers:
            offered = OfferFrom(topic, "edge", "cloud", source, pins, ("cloud",), offer)
            await database.write(decide, offered, log.clock.now())
        await log.close()


async def note_files(url: str) -> None:
    """Note that this node has cosigned files that cloud wrote to a lake."""
    row = {"origin": f"eventd-lake/cloud/{'e' * 16}/{'t' * 16}", "node": "cloud", "log_key": "k", "size": 11}
    row |= {"root": bytes(32), "note": "n", "opened_at": 1, "witnessed_at": 1}
    with closing(Database(url)) as database:
        log = await EventLog.open(database, SystemClock())
        await database.write(insert_row, "witnessed", row | {"topic_id": await log.topic("group:edge")})
        await log.close()


def test_what_is_held_of_files_of_a_peer_is_listed(control: Control, migrated_sqlite_url: str) -> None:
    asyncio.run(note_files(migrated_sqlite_url))
    header, row = (line.split() for line in control("log", "witnesses").lines[:2])
    assert "FILES" in header
    assert "11" in row
    answer = json.loads(control("log", "witnesses", "-o", "json").out)
    assert [(one["node"], one["size"]) for one in answer["files"]] == [("cloud", 11)]


def test_witnesses_and_findings_are_listed(control: Control) -> None:
    table = control("log", "witnesses")
    assert table.lines[1].split()[:1] == ["cloud"]
    assert "shared" in table.lines[1]
    assert "1 finding not confirmed" in table.err
    assert " 0s " not in table.lines[1], "it was never asked to cosign, and is not behind by anything"
    [finding] = json.loads(control("log", "findings", "-o", "json").out)
    assert (finding["kind"], finding["size"], finding["otherSize"]) == ("fork", 2, 2)


def test_a_node_of_which_only_a_refused_key_is_known_is_listed(control: Control, migrated_sqlite_url: str) -> None:
    control("log", "witnesses", "reset", "cloud")
    pinned = GrowingTree(node="cloud", group="edge", key=SECOND).signer.key
    declared = group("onprem", secret="/nowhere/secret")
    declared["spec"]["history"] = {"keys": [{"node": "cloud", "logKey": pinned.text()}]}
    control("apply", "-f", control.file(declare(declared)))
    asyncio.run(witness(migrated_sqlite_url, HONEST.offer(), pins={("cloud", "log"): pinned.public}))
    [key] = json.loads(control("log", "witnesses", "-o", "json").out)["keys"]
    [row] = control("log", "witnesses").lines[1:]
    assert row.split()[0] == "cloud"
    assert f"the log key {key['refused']} is refused: {key['key']} is known" in row


def test_findings_of_an_older_node_that_does_not_count_them_are_counted(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Session.call

    async def older(session: Session, operation: str, /, **params: Any) -> Any:
        answer = await call(session, operation, **params)
        return {name: value for name, value in answer.items() if name != "open"} if "open" in answer else answer

    monkeypatch.setattr(Session, "call", older)
    assert "1 finding not confirmed" in control("log", "witnesses").err


def test_a_lake_says_what_its_nodes_have_witnessed(control: Control, tmp_path: Path, migrated_sqlite_url: str) -> None:
    lake = tmp_path / "lake"
    control("federation", "event", "emit", "--type", "t")
    ship(migrated_sqlite_url, lake, now=SystemClock().now() + 60_000_000)
    [row] = json.loads(control("log", "witnesses", "--lake", str(lake), "-o", "json").out)
    assert (row["node"], row["witness"], row["held"], row["size"]) == ("cloud", "onprem", 2, None)
    assert row["origin"] == str(HONEST.origin)
    assert control("log", "witnesses", "--lake", str(lake), "--group", "other", "-o", "json").out.strip() == "[]"


def test_a_fork_is_written_as_a_file_that_another_person_checks(control: Control, tmp_path: Path) -> None:
    file = tmp_path / "fork.json"
    control("log", "findings", "show", "1", "--out", str(file))
    said = control("prove", "check", str(file), "--key", HONEST.signer.key.text())
    assert said.lines[0].startswith("Proven: ")
    assert str(HONEST.origin) in said.out


def test_a_fork_without_two_checkpoints_of_one_size_has_no_file(
    control: Control, tmp_path: Path, migrated_sqlite_url: str
) -> None:
    log = ("log", "findings")
    assert "routerctl log findings" in control(*log, "show", "2", code=3).err
    larger = GrowingTree(node="cloud", group="edge").grow("z", "z").offer(2)
    asyncio.run(witness(migrated_sqlite_url, larger, source=KeySource.OWNED))
    assert [one["otherSize"] for one in json.loads(control(*log, "-o", "json").out)] == [3, 2]
    said = control(*log, "show", "2", "--out", str(tmp_path / "fork.json"), code=1)
    assert "finding 2 has no file: only two signed checkpoints of one size show a fork" in said.err


def test_a_reset_confirms_the_finding_and_forgets_the_keys(control: Control) -> None:
    assert "confirmed 1 finding; forgot 1 tree and 1 key" in control("log", "witnesses", "reset", "cloud").err
    shown = json.loads(control("log", "witnesses", "-o", "json").out)
    assert (shown["held"], shown["keys"]) == ([], [])
    kinds = [one["kind"] for one in shown["findings"] if one["confirmedAt"] is None]
    assert kinds == ["reset"]


def test_a_rotation_replaces_the_key(control: Control, migrated_sqlite_url: str) -> None:
    folder = Path(migrated_sqlite_url.removeprefix("sqlite:///")).parent
    assert "cannot be used" in control("log", "keys", "rotate", code=1).err, "there is no key yet"
    before = load_history_keys(folder, SYSTEM)
    assert "new key" in control("log", "keys", "rotate").err
    after = load_history_keys(folder, SYSTEM)
    assert after.retired is not None
    assert after.retired.private_bytes_raw() == before.log.private_bytes_raw()
    assert "until it is pinned there" in control("log", "keys", "rotate", "--lost").err
    assert "retired" not in (folder / KEY_FILE).read_text()


@pytest.mark.parametrize("value", ["seen", "witnessed=", "witnessed=0", "witnessed=-1", "sealed=2"])
def test_what_emit_cannot_wait_for_is_refused(control: Control, value: str) -> None:
    said = control("federation", "event", "emit", "--type", "t", "--wait", value, code=2)
    assert "write sealed, witnessed, or witnessed=N" in said.err
