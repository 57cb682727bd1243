"""Real nodes ship to a folder: the ledgers in the lake are complete, correct, and without duplicates."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.coverage.file_trees import judge_files
from eventd.errors import LakeUnusable, MissingExtra, NotFound
from eventd.lake import extra
from eventd.lake.layout import slug, state_path
from eventd.lake.reader import TroubleKind, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.history.trees import find_open_tree
from eventd.log.witnesses.findings import read_findings
from eventd.runtime.chance import SYSTEM
from eventd.store.engine.head_file import forget_head
from eventd.testing import until
from eventd.witnessing.node_keys import load_history_keys
from federation.history.entries import OpeningReason, read_opening_entry
from tests.integration.conftest import MakeSites
from tests.support.child_processes import children
from tests.support.declared import PLAIN_GROUP
from tests.support.shipped import files, rows, state, survey_lake
from tests.support.sites import Site


def ship_to(lake: Path | str, **more: Any) -> dict[str, Any]:
    # Tests run beside each other on all processors: a process that gives way would wait for the last of them.
    return {"lake": str(lake), "lake_interval": "200ms", "lake_nice": "0", **more}


async def joined(sites: MakeSites, lake: Path, *, a_only: bool = False) -> tuple[Site, Site]:
    """Two nodes that send to each other, and ship: both, or only the first."""
    a, b = sites("site-a", "site-b")
    await a.start(**ship_to(lake))
    await b.start(**({} if a_only else ship_to(lake)))
    await a.join(b)
    await b.join(a)
    return a, b


async def shipped(lake: Path, book: Ledger, count: int, node: str = "") -> list[dict[str, Any]]:
    """Until so many rows of a book are there."""
    found: list[dict[str, Any]] = []

    def all_there() -> bool:
        with suppress(NotFound, LakeUnusable):  # not begun yet
            found[:] = rows(lake, book, node)
        return len(found) >= count

    await until(all_there, f"{count} rows of {book} in the lake", seconds=30)
    return found


async def cursors(site: Site) -> list[Cursor]:
    return await site.running.log.database.read(read_cursors, "segments")


async def settled(site: Site, number: int) -> None:
    """Until the node knows that its events are in the lake up to this one."""

    async def there() -> bool:
        return any(c.position >= number for c in await cursors(site) if c.name.endswith("/events"))

    await until(there, f"the cursor of the events to be at {number}", seconds=30)


async def test_both_ends_of_a_link_tell_the_same_and_a_peer_cosigns_the_files(sites: MakeSites, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    a, b = await joined(sites, lake)
    ids = [f"e{number}" for number in range(25)]
    for each in ids:
        await a.emit(each, subject="10.0.0.1/32", payload={"secret": "hush"})
    await b.holds(*ids)
    deliveries = await shipped(lake, Ledger.DELIVERIES, 25)
    received = await shipped(lake, Ledger.EVENTS, 25, "site-b")
    stated = await shipped(lake, Ledger.EVENTS, 25, "site-a")
    assert [row["id"] for row in stated] == [row["id"] for row in received] == [row["id"] for row in deliveries] == ids
    assert [row["own"] for row in stated] == [True] * 25
    assert [row["own"] for row in received] == [False] * 25
    assert [row["digest"] for row in stated] == [row["digest"] for row in received]
    assert [row["fingerprint"] for row in deliveries] == [row["fingerprint"] for row in stated]
    assert {row["payload"] for row in stated} == {None}
    assert {(row["node"], row["peer"], row["outcome"]) for row in deliveries} == {("site-a", "site-b", "delivered")}
    receipts = await shipped(lake, Ledger.RECEIPTS, 1)
    inbound = await shipped(lake, Ledger.INBOUND, len(receipts))
    assert {row["receipt_digest"] for row in receipts} == {row["receipt_digest"] for row in inbound}
    assert {row["batch_id"] for row in receipts} == {row["batch_id"] for row in deliveries}

    def whole() -> bool:
        said = state(lake, "site-a")
        return said.head == 25 and bool(said.groups) and said.groups[0].peers[0].cursor == 25

    await until(whole, "a state with all events")
    said = state(lake, "site-a")
    assert [(said.epoch, said.instance)] == await a.rows("SELECT epoch, instance FROM log_heads")
    assert (said.books[Ledger.EVENTS], said.segments[Ledger.EVENTS].upto) == (25, 25)
    assert said.began_at <= said.as_of
    assert 0 < said.complete_until < said.as_of
    (group,) = said.groups
    assert (group.group, [peer.peer for peer in group.peers]) == ("edge", ["site-b"])
    assert (group.last_seq, group.evicted_seq) == (25, 0)
    assert group.peers[0].selections[-1].version == (await a.cursor("site-b")).selector_version
    more = (f"f{number}" for number in count())

    async def cosigned() -> bool:
        await a.emit(next(more))  # the next state has the cosignature
        tree = state(lake, "site-a").tree
        return tree is not None and "\n— eventd/edge/site-b/witness " in tree.cosigned

    await until(cosigned, "a state with a cosignature", seconds=30)
    assert judge_files(connect(str(lake)), survey_lake(lake)).findings == []


async def test_another_lake_gets_all_that_is_still_known(sites: MakeSites, tmp_path: Path) -> None:
    (a,) = sites("site-a")
    load_history_keys(a.directory, SYSTEM)
    for number, lake in enumerate([tmp_path / "one", tmp_path / "two", tmp_path / "one"], 1):
        await a.start(**ship_to(lake))
        await a.join()
        await a.emit(f"e{number}")
        assert len(await shipped(lake, Ledger.EVENTS, number)) == number
        await a.stop()
    found = rows(tmp_path / "one", Ledger.EVENTS)
    assert [(row["number"], row["id"]) for row in found] == [(1, "e1"), (2, "e2"), (3, "e3")]
    surveyed = survey_lake(tmp_path / "one")
    (said,) = surveyed.nodes
    assert said.tree is not None
    assert judge_files(connect(str(tmp_path / "one")), surveyed).signed == {"site-a"}, "with the key beside its data"
    assert len([*(tmp_path / "one" / "trees").glob("*/*/*")]) == 1, "a node that ships again continues its tree"


async def test_the_process_gives_way_and_when_it_dies_another_goes_on(sites: MakeSites, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (a,) = sites("site-a")
    await a.start(**ship_to(lake, lake_nice="1"))
    await a.join()
    await a.emit("e1")
    await shipped(lake, Ledger.EVENTS, 1)
    first = shipping_process()
    assert os.getpriority(os.PRIO_PROCESS, first) == os.getpriority(os.PRIO_PROCESS, 0) + 1
    os.kill(first, signal.SIGKILL)
    await a.emit("e2")
    assert [row["id"] for row in await shipped(lake, Ledger.EVENTS, 2)] == ["e1", "e2"]

    async def running() -> bool:
        return {cursor.state for cursor in await cursors(a)} == {"running"}

    await until(running, "shipping to be running again")
    assert shipping_process() != first


def shipping_process() -> int:
    """The number of the one shipping process this process has."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    found = [int(pid) for pid in children if b"egress.lake.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1, found
    return found[0]


async def test_a_restored_copy_begins_ranges_of_its_own(sites: MakeSites, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (a,) = sites("site-a")
    await a.start(**ship_to(lake))
    await a.join(**PLAIN_GROUP)
    await a.emit("e1")
    await settled(a, 1)
    copy = a.back_up()
    await a.emit("e2")
    await shipped(lake, Ledger.EVENTS, 2)
    first = state(lake, "site-a").epoch
    await a.stop()
    a.restore(copy)
    await a.start(**ship_to(lake))
    second = (await a.rows("SELECT epoch FROM log_heads"))[0][0]
    await a.emit("e3")

    def both() -> bool:
        found = survey(connect(str(lake)))
        return len(found.nodes) == 2 and sum(one.place.book is Ledger.EVENTS for one in found.segments) == 3

    await until(both, "segments of both histories", seconds=30)
    found = survey(connect(str(lake)))
    assert [(one.kind, one.epoch) for one in found.troubles] == [(TroubleKind.EPOCHS, second)]
    at = {(s.manifest.epoch, s.after, s.upto) for s in found.segments if s.place.book is Ledger.EVENTS}
    assert at == {(first, 0, 1), (first, 1, 2), (second, 1, 2)}


async def test_a_node_without_peers_learns_from_its_lake_that_its_database_is_an_older_copy(
    sites: MakeSites, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    (a,) = sites("site-a")
    await a.start(**ship_to(lake))
    await a.join(history={"mode": "record"})

    async def sealed(size: int) -> None:
        async def is_shipped() -> bool:
            return any(row["size"] == size for row in await shipped(lake, Ledger.HISTORY, 1))

        await until(is_shipped, f"a checkpoint of {size} leaves in the lake", seconds=30)

    await a.emit("e1")
    await sealed(2)
    copy = a.back_up()
    await a.emit("e2")
    await sealed(3)
    await a.stop()
    a.restore(copy)
    forget_head(a.file)  # as on another machine: only the lake knows what was signed
    await a.start(**ship_to(lake))
    log = a.running.log
    topic = await log.topic("group:edge")

    async def is_known() -> bool:
        return [one.kind for one in await log.database.read(read_findings, topic)] == ["older_copy"]

    await until(is_known, "the lake to be read", seconds=30)

    async def is_new() -> bool:
        tree = await log.database.read(find_open_tree, topic)
        return tree is not None and read_opening_entry(tree.opening).opening.reason is OpeningReason.EPOCH

    await until(is_new, "a tree of the new epoch")


async def test_a_lake_that_is_away_holds_the_books_and_nothing_else(sites: MakeSites, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("this is not a folder")
    a, b = await joined(sites, lake, a_only=True)
    await a.emit("e1")
    await b.holds("e1")

    async def held_up() -> bool:
        found = await cursors(a)
        return bool(found) and {(c.state, c.reason) for c in found} == {("backing-off", "lake_unavailable")}

    await until(held_up, "shipping to be held up", seconds=30)
    (error,) = {cursor.last_error for cursor in await cursors(a)}
    assert str(lake) in error
    assert "is not a folder" in error
    lake.unlink()
    assert len(await shipped(lake, Ledger.DELIVERIES, 1)) == 1
    await until(
        lambda: len(files(lake)) == len(survey_lake(lake).segments), "each file to have its manifest", seconds=30
    )


async def test_a_lake_of_another_schema_is_left_alone(sites: MakeSites, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "eventd-lake.json").write_text('{"schema": 9, "id": "x", "made_at": 0}')
    (a,) = sites("site-a")
    await a.start(**ship_to(lake))
    await a.join()

    async def blocked() -> bool:
        found = await cursors(a)
        return bool(found) and {(c.state, c.reason) for c in found} == {("blocked", "lake_unusable")}

    await until(blocked, "shipping to be blocked", seconds=30)
    assert "schema version 9" in (await cursors(a))[0].last_error
    assert [path.name for path in lake.iterdir()] == ["eventd-lake.json"]


async def test_two_names_of_one_node_keep_books_of_their_own(sites: MakeSites, tmp_path: Path) -> None:
    """In a store behind fsspec, with payloads; a name that is not a valid folder name is kept in the rows."""
    lake = tmp_path / "lake"
    (a,) = sites("Site_A.example")
    await a.start(**ship_to(f"local://{lake}", lake_payloads=True))
    await a.join()
    group = {
        "apiVersion": "federation.routerd.net/v1alpha1",
        "kind": "EventGroup",
        "metadata": {"name": "second"},
        "spec": {"nodeName": "other"},
    }
    await a.apply(group)
    await a.emit("e1", payload={"port": "7"})
    await a.emit("f1", group="second")
    await settled(a, 2)
    found: dict[str, dict[str, Any]] = {}
    payloads: set[bool] = set()

    def whole() -> bool:
        with suppress(AssertionError):  # what is written there can be seen before it is whole, and stay so after a stop
            payloads.update(one.manifest.payloads for one in survey_lake(lake).segments if one.place.book == "events")
            found.update((row["node"], row) for row in rows(lake, Ledger.EVENTS))
        return len(found) >= 2

    await until(whole, "the lake to be whole", seconds=30)
    row = found["Site_A.example"]
    assert (row["id"], row["source"], found["other"]["id"]) == ("e1", "Site_A.example", "f1")
    assert (lake / state_path("Site_A.example", row["epoch"])).exists()
    assert slug("Site_A.example").startswith("site-a-example-")

    (stored,) = await a.stored()
    digest = hashlib.sha256(stored.body.encode()).digest()
    assert row["digest"] == digest
    assert row["fingerprint"] == int.from_bytes(digest[:8], signed=True)
    assert row["bytes"] == len(stored.body.encode())
    assert json.loads(row["payload"]) == {"port": "7"}
    assert payloads == {True}


async def test_a_node_without_the_packages_says_so_at_once(
    sites: MakeSites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = sites("site-a")
    monkeypatch.setattr(extra, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[lake\]'"):
        await a.start(**ship_to(tmp_path / "lake"))
    monkeypatch.undo()
    with pytest.raises(LakeUnusable, match="no installed package can access the lake at nowhere://"):
        await a.start(lake="nowhere://bucket")


async def test_a_node_for_one_group_leaves_shipping_to_others(sites: MakeSites, tmp_path: Path) -> None:
    (a,) = sites("site-a")
    await a.start(**ship_to(tmp_path / "lake", group="edge"))
    await a.join()
    await a.emit("e1")
    assert not any(b"egress.lake.worker" in command.encode() for command in children())


@pytest.mark.postgres
async def test_what_a_postgres_database_holds_from_before_there_was_a_lake_is_shipped(
    migrated_postgres_url: str, sites: MakeSites, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    (a,) = sites("site-a", urls=[migrated_postgres_url])
    await a.start()
    await a.join()
    await a.emit("e1", "e2")
    await a.stop()
    await a.start(**ship_to(lake))
    assert [row["id"] for row in await shipped(lake, Ledger.EVENTS, 2)] == ["e1", "e2"]
