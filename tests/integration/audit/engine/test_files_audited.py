"""The files of the lake of a real node that signs them, audited: each change of another program is found."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.report import Report
from eventd.egress.lake import state_signer
from eventd.lake.compaction import compacting
from eventd.lake.file_tree import LineKind, line_of
from eventd.lake.layout import landing
from eventd.lake.manifest import NodeState
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import write_segment, write_state
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from eventd.witnessing.node_keys import load_history_keys, rotate_log_key
from federation.history.lake_checkpoints import LakeCheckpoint, read_lake_origin, sign_lake_checkpoint
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support.campaign.lake_files import LakeFiles
from tests.support.lakes import NOON
from tests.support.ledger_store import LedgerStore
from tests.support.local_spark import run_audit
from tests.support.stopped_nodes import ship

DAY = 86_400 * SECOND
LATER = NOON + 600 * SECOND


@pytest.fixture
async def lake(migrated_sqlite_url: str, tmp_path: Path) -> LakeFiles:
    """The lake of a node with a key, which shipped twice and began anew in between."""
    keys = tmp_path / "keys"
    keys.mkdir()
    load_history_keys(keys, SYSTEM)
    for number in range(2):
        await publish(migrated_sqlite_url, f"e{number}")
        ship(migrated_sqlite_url, tmp_path / "lake", now=LATER + number * 60 * SECOND, keys=keys)
    return LakeFiles(tmp_path / "lake")


async def publish(url: str, id: str) -> None:
    node = LedgerStore(await EventLog.open(Database(url), ManualClock(NOON)))
    await node.declare()
    await node.publish(draft(id, group="g", node="a"))
    await node.log.close()
    node.log.database.close()


def audit(lake: LakeFiles, **more: Any) -> Report:
    request = AuditRequest(lake=str(lake.root), out=str(lake.root.parent / "out"), **more)
    return run_audit(request, clock=ManualClock(LATER + 60 * SECOND))


def rewritten(report: Report) -> list[str]:
    return [f"{one.detail.partition(';')[0]}" for one in report.findings if one.kind.value == "lake_rewritten"]


def unsigned(report: Report) -> list[str]:
    return [one.message for one in report.troubles if one.kind in ("not signed", "unproven")]


def test_a_lake_without_files_of_other_programs_is_what_the_node_signed(lake: LakeFiles) -> None:
    report = audit(lake)
    assert (rewritten(report), unsigned(report), report.findings) == ([], [], ())
    assert [one.signed_at for one in report.nodes] == [report.nodes[0].as_of]
    folder = lake.root.parent / "keys"
    signer = NoteSigner("eventd/g/a/any", LOG_KEY, load_history_keys(folder, SYSTEM).log)
    assert not rewritten(audit(lake, policy=(signer.key,)))
    other = NoteSigner("eventd/g/a/any", LOG_KEY, load_history_keys(folder, SYSTEM).witness)
    for policy, words in (
        ((other.key,), "its state is signed with an unverified key"),
        ((), "the policy has no key of a"),
    ):
        report = audit(lake, policy=policy)
        assert (rewritten(report), [one[: len(words)] for one in unsigned(report)]) == ([], [words])
        assert report.nodes[0].signed_at is None


def edit_row(lake: LakeFiles) -> None:
    lake.change("events", "a", lambda row: row["id"] == "e0", lambda row: row | {"subject": "another"})


def edit_row_and_add_its_line(lake: LakeFiles) -> None:
    edit_row(lake)
    manifest = lake.segments("events", "a")[0].manifest
    (lines,) = lake.root.glob("trees/*/*/*/*.txt")
    name = manifest.relative_to(lake.root).as_posix().removesuffix(".json")
    line = line_of(LineKind.SHIP, name, manifest.read_bytes())
    lines.write_text(f"{lines.read_text()}{line.text()}\n")


def remove_segment(lake: LakeFiles) -> None:
    lake.segments("events", "a")[0].remove()


def add_segment(lake: LakeFiles) -> None:
    first = lake.segments("events", "a")[0]
    name = first.data.name.rpartition("-")
    for file in (first.data, first.manifest):
        shutil.copyfile(file, file.with_name(f"{name[0]}-{2:020d}{file.suffix}"))
    first.remove()
    added = type(first)(first.data.with_name(f"{name[0]}-{2:020d}.parquet"))
    added.describe(upto=2)


def add_ledger(lake: LakeFiles, *, signed: bool = False) -> None:
    """Add a segment of a ledger that the node signed to have none of, perhaps with a line that nobody signed."""
    state = lake.state("a")
    row = {"number": 1, "node": "a", "epoch": state["epoch"], "group": "g", "peer": "", "gap_epoch": state["epoch"]}
    row |= {"after": 0, "upto": 1, "reason": "events_lost", "recorded_at": NOON}
    table = pa.Table.from_pylist([row], schema=arrow_schema(Ledger.GAPS))
    place = landing(Ledger.GAPS, "a", state["epoch"], 0, 1, at=NOON)

    def announce(manifest: bytes) -> None:
        (lines,) = lake.root.glob("trees/*/*/*/*.txt")
        line = line_of(LineKind.SHIP, place.name, manifest)
        lines.write_text(f"{lines.read_text()}{line.text()}\n" if signed else lines.read_text())

    write_segment(connect(str(lake.root)), place, [table], node="a", now=LATER, payloads=False, announce=announce)


def add_row_and_its_line(lake: LakeFiles) -> None:
    """Exchange a segment for one with another name, whose line nobody signed, in the range that the node signed."""
    add_segment(lake)
    manifest = lake.segments("events", "a")[0].manifest
    (lines,) = lake.root.glob("trees/*/*/*/*.txt")
    name = manifest.relative_to(lake.root).as_posix().removesuffix(".json")
    line = line_of(LineKind.SHIP, name, manifest.read_bytes())
    lines.write_text(f"{lines.read_text()}{line.text()}\n")


def edit_state(lake: LakeFiles) -> None:
    lake.set_state("a", lambda state: state.update(interval=7))


def edit_note(lake: LakeFiles) -> None:
    def raise_size(state: dict[str, Any]) -> None:
        head, size, rest = state["tree"]["note"].split("\n", 2)
        state["tree"]["note"] = f"{head}\n{int(size) + 1}\n{rest}"

    lake.set_state("a", raise_size)


def edit_key(lake: LakeFiles) -> None:
    def exchange(state: dict[str, Any]) -> None:
        name = state["tree"]["key"].partition("+")[0]
        other = load_history_keys(lake.root.parent / "keys", SYSTEM).witness
        state["tree"]["key"] = NoteSigner(name, LOG_KEY, other).key.text()

    lake.set_state("a", exchange)


def add_later_cosigned(lake: LakeFiles) -> None:
    """Add what witnesses cosigned later than this state: a checkpoint with more lines, which the node signed."""

    def add(state: dict[str, Any]) -> None:
        name = state["tree"]["key"].partition("+")[0]
        signer = NoteSigner(name, LOG_KEY, load_history_keys(lake.root.parent / "keys", SYSTEM).log)
        later = LakeCheckpoint(read_lake_origin(name), 99, bytes(32), bytes(32))
        state["tree"]["cosigned"] = sign_lake_checkpoint(later, signer).encode().decode()

    lake.set_state("a", add)


def edit_line(lake: LakeFiles) -> None:
    (file,) = lake.root.glob("trees/*/*/*/*.txt")
    file.write_text(file.read_text().replace("ship", "archive", 1))


def remove_lines(lake: LakeFiles) -> None:
    shutil.rmtree(lake.root / "trees")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (edit_row, ["its manifest is not the one that the node signed"]),
        (edit_row_and_add_its_line, ["its manifest is not the one that the node signed"]),
        (remove_segment, ["the node signed that it wrote this segment: it is gone"]),
        (add_segment, ["the node did not sign that it wrote this segment"]),
        (add_row_and_its_line, ["the node did not sign that it wrote this segment"]),
        (add_ledger, ["the node did not sign that it wrote this segment"]),
        (edit_state, ["its state has the digest "]),
        (edit_note, ["the checkpoint of its files is not valid: a signature "]),
        (edit_key, ["the checkpoint of its files is not valid: the note has no signature"]),
        (add_later_cosigned, ["the state has 9 lines of eventd-lake/a/"]),
        (edit_line, ["the lines of eventd-lake/a/"]),
        (remove_lines, ["the lake has 0 of the "]),
    ],
)
def test_what_another_program_writes_is_not_what_the_node_signed(
    lake: LakeFiles, damage: Callable[[LakeFiles], None], words: list[str]
) -> None:
    damage(lake)
    report = audit(lake)
    found = rewritten(report)
    assert report.nodes[0].signed_at is None
    assert [one[: len(part)] for one, part in zip(found, words, strict=True)] == words


def test_a_state_without_its_signature_leaves_the_audit_unproven(lake: LakeFiles) -> None:
    lake.set_state("a", lambda state: state.update(tree=None))
    report = audit(lake)
    assert (rewritten(report), unsigned(report)) == ([], ["the state of the node is not signed any more"])
    assert report.totals.completeness is None


def test_the_archive_is_signed_if_the_node_writes_it_and_not_signed_if_another_program_does(
    lake: LakeFiles, migrated_sqlite_url: str
) -> None:
    copy = LakeFiles(Path(shutil.copytree(lake.root, lake.root.parent / "copied" / "lake")))
    ship(migrated_sqlite_url, lake.root, now=LATER + 3 * DAY, keys=lake.root.parent / "keys", compact=True)
    assert [*lake.root.glob("archive/events/*/*/*.json")]
    report = audit(lake)
    assert (rewritten(report), unsigned(report)) == ([], [])
    assert sum(one.compacted for one in compacting(connect(str(copy.root)), ["a"], now=LATER + 3 * DAY, after=1))
    report = audit(copy)
    assert (rewritten(report), unsigned(report)) == (
        [],
        ["1 segment of a is written to the archive by another program than the node"],
    )


def archive_elsewhere(lake: LakeFiles) -> LakeFiles:
    """Archive closed days as a program without the node's key does, and return the lake."""
    assert sum(one.compacted for one in compacting(connect(str(lake.root)), ["a"], now=LATER + 3 * DAY, after=1))
    return lake


def test_the_node_signs_an_archive_of_another_program_that_has_the_rows_it_signed(
    lake: LakeFiles, migrated_sqlite_url: str
) -> None:
    changed, forged = (
        LakeFiles(Path(shutil.copytree(lake.root, lake.root.parent / name / "lake"))) for name in ("changed", "forged")
    )
    edit_row(changed)
    archive_elsewhere(lake)
    archive_elsewhere(changed)
    shutil.copytree(changed.root / "archive", forged.root / "archive")
    for one in (lake, changed, forged):  # each the lake of a database of its own
        url = f"{migrated_sqlite_url}.{one.root.parent.name}"
        shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), url.removeprefix("sqlite:///"))
        ship(url, one.root, now=LATER + 3 * DAY, keys=lake.root.parent / "keys", compact=True)
    report = audit(lake)
    assert (rewritten(report), unsigned(report)) == ([], [])
    told = ["1 segment of a is written to the archive by another program than the node"]
    assert (unsigned(audit(changed)), unsigned(audit(forged))) == (told, told)


async def test_the_node_never_signs_a_state_that_another_program_changed(
    lake: LakeFiles, migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.set_state("a", lambda state: state.update(complete_until=LATER + DAY))
    await publish(migrated_sqlite_url, "e2")
    signed: list[int] = []

    def write(storage: Storage, state: NodeState) -> None:
        signed.append(state.complete_until)
        write_state(storage, state)

    monkeypatch.setattr(state_signer, "write_state", write)
    ship(migrated_sqlite_url, lake.root, now=LATER + 120 * SECOND, keys=lake.root.parent / "keys")
    assert len(signed) > 1, "also before the end of the round"
    assert max(signed) < LATER + 120 * SECOND


def test_the_node_signs_what_its_own_retention_removes(lake: LakeFiles, migrated_sqlite_url: str) -> None:
    keys, steps = lake.root.parent / "keys", []
    for days in (10, 12):  # marked, and removed a day later at the earliest
        ship(migrated_sqlite_url, lake.root, now=LATER + days * DAY, keys=keys, retention=DAY)
        steps.append(len([*lake.root.glob("landing/events/*/*/*.json")]))
        report = audit(lake)
        assert (rewritten(report), unsigned(report)) == ([], [])
    assert steps == [2, 0]


def test_the_node_does_not_sign_a_removal_that_it_did_not_make(lake: LakeFiles, migrated_sqlite_url: str) -> None:
    storage, keys = connect(str(lake.root)), lake.root.parent / "keys"
    for days in (10, 12):
        list(retaining(storage, ["a"], now=LATER + days * DAY, keep=DAY))
    assert not [*lake.root.glob("landing/events/*/*/*")]
    for retention in (0, 30 * DAY):  # a node that keeps rows for ever, or still keeps these
        ship(migrated_sqlite_url, lake.root, now=LATER + 12 * DAY, keys=keys, retention=retention)
        report = audit(lake)
        assert (rewritten(report), unsigned(report)) == (
            [],
            ["retention has removed 2 segments of a, which the node has not signed"],
        )
        assert report.nodes[0].signed_at is None


@pytest.mark.parametrize(("own", "doubted"), [(True, []), (False, [1, 3])])
async def test_what_a_node_has_signed_to_be_removed_explains_what_is_gone_of_an_earlier_epoch(
    lake: LakeFiles, migrated_sqlite_url: str, own: bool, doubted: list[int]
) -> None:
    keys = lake.root.parent / "keys"
    await grow(migrated_sqlite_url, "e2", TreeOwner("g", "a", load_history_keys(keys, SYSTEM).log))
    ship(migrated_sqlite_url, lake.root, now=LATER + 120 * SECOND, keys=keys)
    with closing(Database(migrated_sqlite_url)) as database:
        database.write_now(renew_epoch)
    await publish(migrated_sqlite_url, "e3")
    ship(migrated_sqlite_url, lake.root, now=LATER + DAY, keys=keys)
    for days in (10, 12):
        if not own:
            list(retaining(connect(str(lake.root)), ["a"], now=LATER + days * DAY, keep=DAY))
        ship(migrated_sqlite_url, lake.root, now=LATER + days * DAY, keys=keys, retention=DAY if own else 0)
    assert (len([*lake.states("a")]), [*lake.root.glob("landing/events/*/*/*.json")]) == (2, [])
    report = audit(lake)
    told = [re.findall(r"retention has removed (\d+)", one) for one in unsigned(report)]
    assert (rewritten(report), sorted(int(found[0]) for found in told if found)) == ([], doubted)


async def test_a_rotated_key_continues_the_tree_and_a_lost_one_begins_another(
    lake: LakeFiles, migrated_sqlite_url: str
) -> None:
    folder = lake.root.parent / "keys"
    for number, lost in enumerate((False, True), 2):
        rotate_log_key(folder, SYSTEM, lost=lost)
        await publish(migrated_sqlite_url, f"e{number}")
        ship(migrated_sqlite_url, lake.root, now=LATER + number * 60 * SECOND, keys=folder)
        report = audit(lake)
        assert (rewritten(report), len(unsigned(report))) == ([], int(lost))
    assert "older than the present tree of the node's files, which is not its first one" in unsigned(report)[0]


async def test_a_key_whose_change_the_known_key_signed_is_known(lake: LakeFiles, migrated_sqlite_url: str) -> None:
    folder = lake.root.parent / "keys"
    policy = (NoteSigner("eventd/g/a/any", LOG_KEY, load_history_keys(folder, SYSTEM).log).key,)
    for number, lost in enumerate((None, False, True), 2):
        if lost is not None:
            rotate_log_key(folder, SYSTEM, lost=lost)
        keys = load_history_keys(folder, SYSTEM)
        await grow(migrated_sqlite_url, f"e{number}", TreeOwner("g", "a", keys.log, keys.retired))
        ship(migrated_sqlite_url, lake.root, now=LATER + number * 60 * SECOND, keys=folder)
        words = ["its state is signed with an unverified key"] if lost else []
        report = audit(lake, policy=policy)
        assert (rewritten(report), [one for one in words if one not in str(unsigned(report))]) == ([], [])
        assert (report.nodes[0].signed_at is None) is bool(lost)


async def test_a_replaced_key_signs_no_later_state(lake: LakeFiles, migrated_sqlite_url: str) -> None:
    folder = lake.root.parent / "keys"
    old = Path(shutil.copytree(folder, lake.root.parent / "old"))
    first = load_history_keys(folder, SYSTEM).log
    await grow(migrated_sqlite_url, "e2", TreeOwner("g", "a", first))
    rotate_log_key(folder, SYSTEM, lost=False)
    keys = load_history_keys(folder, SYSTEM)
    await grow(migrated_sqlite_url, "e3", TreeOwner("g", "a", keys.log, keys.retired))
    ship(migrated_sqlite_url, lake.root, now=LATER, keys=folder)
    policy = (NoteSigner("eventd/g/a/any", LOG_KEY, first).key,)
    for hours, doubts in ((0, 0), (2, 1)):
        ship(migrated_sqlite_url, lake.root, now=LATER + hours * 3600 * SECOND, keys=old)
        told = [one for one in unsigned(audit(lake, policy=policy)) if "unverified key" in one]
        assert len(told) == doubts


async def grow(url: str, id: str, owner: TreeOwner) -> None:
    """Open the tree of the group where that is due, add an event, and sign a checkpoint."""
    log = await EventLog.open(Database(url), ManualClock(NOON))
    node = LedgerStore(log)
    await node.declare()
    topic = await log.topic("group:g")
    await log.database.write(open_tree, topic, owner, NOON)
    await node.publish(draft(id, group="g", node="a"))
    hashed = await log.database.read(hash_new, topic)
    assert hashed is not None
    assert await log.database.write(store_checkpoint, hashed, owner, NOON) is not None
    await log.close()
    log.database.close()


def remove_trees(lake: LakeFiles) -> None:
    shutil.rmtree(lake.root / "trees")
    lake.set_state("a", lambda state: state.update(tree=None))


def begin_another_tree(lake: LakeFiles) -> None:
    """Remove the lines, and let the node begin a tree that it signs: a node whose state is not signed does so."""
    remove_trees(lake)
    url = f"sqlite:///{next(lake.root.parent.glob('*.copy'))}"
    ship(url, lake.root, now=LATER + 120 * SECOND, keys=lake.root.parent / "keys")


@pytest.mark.parametrize(("damage", "words"), [(remove_trees, "gone"), (begin_another_tree, "gone")])
def test_an_audit_remembers_the_trees_of_files(
    lake: LakeFiles, migrated_sqlite_url: str, damage: Callable[[LakeFiles], None], words: str
) -> None:
    shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), lake.root.parent / "a.copy")
    assert not rewritten(audit(lake))
    damage(lake)
    for _ in range(2):
        found = rewritten(audit(lake))[0]
        assert re.fullmatch(
            r"the [0-9]+ lines of eventd-lake/a/\S+, which an earlier audit saw \(.*\), are gone", found
        )


def put_back(lake: LakeFiles) -> None:
    """Put the lake back to what it was before the node shipped last, and let the node ship again."""
    url = f"sqlite:///{next(lake.root.parent.glob('*.copy'))}"
    earlier = shutil.copytree(lake.root, lake.root.parent / "earlier")
    asyncio.run(publish(url, "e2"))
    ship(url, lake.root, now=LATER + 120 * SECOND, keys=lake.root.parent / "keys")
    shutil.rmtree(lake.root)
    shutil.copytree(earlier, lake.root)
    ship(url, lake.root, now=LATER + 180 * SECOND, keys=lake.root.parent / "keys")


@pytest.mark.parametrize("damage", [begin_another_tree, put_back])
def test_a_node_says_that_its_tree_of_files_is_gone_or_was_put_back(
    lake: LakeFiles, migrated_sqlite_url: str, damage: Callable[[LakeFiles], None]
) -> None:
    shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), lake.root.parent / "a.copy")
    damage(lake)
    (found,) = rewritten(audit(lake))
    assert re.fullmatch(
        r"the node had signed [0-9]+ lines of eventd-lake/a/\S+ before: they are not in the lake", found
    )


async def test_a_tree_of_files_that_was_put_back_is_found(lake: LakeFiles, migrated_sqlite_url: str) -> None:
    shutil.copytree(lake.root, lake.root.parent / "earlier")
    await publish(migrated_sqlite_url, "e2")
    ship(migrated_sqlite_url, lake.root, now=LATER + 120 * SECOND, keys=lake.root.parent / "keys")
    assert not rewritten(audit(lake))
    shutil.rmtree(lake.root)
    shutil.copytree(lake.root.parent / "earlier", lake.root)
    (found,) = rewritten(audit(lake))
    assert re.search(r"the node signed [0-9]+ lines of \S+, of which an earlier audit saw [0-9]+ ", found)


async def test_a_node_that_signs_its_history_signs_its_files(migrated_sqlite_url: str, tmp_path: Path) -> None:
    keys = load_history_keys(tmp_path, SYSTEM)
    await grow(migrated_sqlite_url, "e1", TreeOwner("g", "a", keys.log))
    ship(migrated_sqlite_url, tmp_path / "lake", now=LATER)
    report = audit(LakeFiles(tmp_path / "lake"))
    assert unsigned(report) == ["the state of the node is not signed, although it signs its history"]
