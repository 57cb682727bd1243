"""An event is proven from the lake alone, as a second implementation checks it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.errors import CheckFailed, NotFound
from eventd.lake.storage import Storage, connect
from eventd.lake.tree_proofs import prove_from_lake
from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from federation.history.cosignatures import cosign
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner, read_note, read_vkey, sign_text
from federation.history.policy import Policy
from federation.history.proof_file import ProofFile
from tests.support import plain_history as plain
from tests.support.campaign.lake_files import LakeFiles, Row
from tests.support.lakes import NOON
from tests.support.ledger_store import LedgerStore
from tests.support.stopped_nodes import ship

OTHER = Ed25519PrivateKey.from_private_bytes(b"2" * 32)
WITNESS = NoteSigner("eventd/g/b/witness", WITNESS_KEY, Ed25519PrivateKey.from_private_bytes(b"3" * 32))
OWNER = TreeOwner("g", "a", Ed25519PrivateKey.from_private_bytes(b"1" * 32))


@pytest.fixture
async def shipped(migrated_sqlite_url: str, tmp_path: Path) -> tuple[Storage, str]:
    """A lake with a tree of 700 events, shipped in two rounds, and the key of the tree."""
    log = await EventLog.open(Database(migrated_sqlite_url), ManualClock(NOON))
    store = LedgerStore(log)
    await store.declare(node="a")
    topic = await log.topic("group:g")
    await store.publish(draft("before", group="g", node="a"))
    tree = await log.database.write(open_tree, topic, OWNER, NOON)
    lake = tmp_path / "lake"
    for first, last in ((1, 300), (301, 700)):
        await store.publish(
            *(draft(f"e{at}", group="g", node="a", payload={"n": f"ü{at}"}) for at in range(first, last + 1))
        )
        await _seal(log, topic, OWNER)
        ship(migrated_sqlite_url, lake, now=NOON + last, payloads=first == 1)
    await store.publish(draft("late", group="g", node="a"))
    ship(migrated_sqlite_url, lake, now=NOON + 900)
    await log.close()
    log.database.close()
    return connect(str(lake)), tree.log_key


@pytest.mark.parametrize("number", [1, 255, 256, 300, 301, 512, 700])
async def test_a_proof_from_the_lake_holds_for_a_second_implementation(
    shipped: tuple[Storage, str], number: int
) -> None:
    storage, key = shipped
    file = prove_from_lake(storage, f"e{number}")
    digest, index, size, _ = plain.open_file(file.encode(), key, [])
    assert (index, size) == (number, 701)
    assert (file.event is not None) == (number <= 300), "later payloads are not in the lake"
    if file.event is not None:
        assert digest == hashlib.sha256(file.event.encode()).digest()
        assert f"ü{number}" in file.event
    assert prove_from_lake(storage, f"e{number}", with_event=False).event is None


async def test_what_the_lake_does_not_prove_is_said(shipped: tuple[Storage, str]) -> None:
    storage, _ = shipped
    with pytest.raises(NotFound, match="no node in the lake"):
        prove_from_lake(storage, "unknown")
    with pytest.raises(NotFound, match="no node in the lake"):
        prove_from_lake(storage, "e1", group="other")
    with pytest.raises(CheckFailed, match="has no leaf"):
        prove_from_lake(storage, "before")
    with pytest.raises(CheckFailed, match="in no checkpoint"):
        prove_from_lake(storage, "late")


async def test_without_the_hashes_of_the_ledger_there_is_no_proof(shipped: tuple[Storage, str]) -> None:
    storage, _ = shipped
    LakeFiles(Path(storage.locate(""))).remove("history", "a", lambda row: bool(row["kind"] == "hashes"))
    with pytest.raises(CheckFailed, match="hash 0 of level 1 is not in the lake"):
        prove_from_lake(storage, "e300")


@pytest.mark.parametrize("change", [{"content": "x!"}, {"first": None}])
async def test_a_changed_row_of_hashes_that_is_not_needed_does_not_prevent_a_proof(
    shipped: tuple[Storage, str], change: dict[str, object]
) -> None:
    storage, key = shipped
    files = LakeFiles(Path(storage.locate("")))
    files.change("history", "a", lambda row: bool(row["kind"] == "hashes"), lambda row: row | change)
    assert plain.open_file(prove_from_lake(storage, "e200").encode(), key, [])[1] == 200


async def test_changed_checkpoints_prove_nothing(shipped: tuple[Storage, str]) -> None:
    storage, _ = shipped
    files = LakeFiles(Path(storage.locate("")))
    files.change("history", "a", lambda row: bool(row["kind"] == "checkpoint"), lambda row: row | {"content": "x"})
    with pytest.raises(CheckFailed, match="in no checkpoint"):
        prove_from_lake(storage, "e200")


async def test_an_event_with_a_changed_payload_is_proven_by_its_digest(shipped: tuple[Storage, str]) -> None:
    storage, key = shipped
    files = LakeFiles(Path(storage.locate("")))
    files.change("events", "a", lambda row: bool(row["id"] == "e200"), lambda row: row | {"payload": "{"})
    file = prove_from_lake(storage, "e200")
    assert file.event is None
    assert plain.open_file(file.encode(), key, [])[1] == 200


def _cosigned_first(row: Row) -> Row:
    """Return the row of the first checkpoint with a cosignature of the witness."""
    note = read_note(row["content"].encode())
    return row | {"content": note.add(cosign(note.text, WITNESS, 1)).encode().decode()}


def _is_first(row: Row) -> bool:
    return row["kind"] == "checkpoint" and row["size"] == 301


async def test_cosignatures_count_that_a_witness_of_the_policy_made(shipped: tuple[Storage, str]) -> None:
    storage, key = shipped
    files = LakeFiles(Path(storage.locate("")))
    files.change("history", "a", _is_first, _cosigned_first)
    policy = Policy((read_vkey(key, LOG_KEY),), {"b": WITNESS.key})
    assert _size(prove_from_lake(storage, "e1", policy=policy), key) == 301
    assert _size(prove_from_lake(storage, "e1"), key) == 701, "a line that nobody has verified counts for nothing"
    files.change("history", "a", _is_first, lambda row: row | {"content": f"{row['content'][:-9]}AAAAAAA=\n"})
    assert _size(prove_from_lake(storage, "e1", policy=policy), key) == 701, "a wrong cosignature proves nothing"
    with pytest.raises(CheckFailed, match="no key of its node"):
        prove_from_lake(storage, "e1", policy=Policy((NoteSigner("eventd/g/a/x", LOG_KEY, OTHER).key,)))


def _size(file: ProofFile, key: str) -> int:
    size: int = plain.open_file(file.encode(), key, [])[2]
    return size


async def test_a_checkpoint_that_the_key_of_the_tree_did_not_sign_proves_nothing(shipped: tuple[Storage, str]) -> None:
    storage, key = shipped

    def forge(row: Row) -> Row:
        text = read_note(row["content"].encode()).text
        line = sign_text(text, NoteSigner(key.partition("+")[0], LOG_KEY, OTHER)).line()
        return row | {"content": f"{text}\n{line}\n{line}\n"}

    LakeFiles(Path(storage.locate(""))).change(
        "history", "a", lambda row: row["kind"] == "checkpoint" and row["size"] == 701, forge
    )
    assert _size(prove_from_lake(storage, "e1"), key) == 301


async def test_an_event_that_was_shipped_before_its_tree_ended_is_proven_in_the_next_one(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    log = await EventLog.open(Database(migrated_sqlite_url), ManualClock(NOON))
    store = LedgerStore(log)
    await store.declare(node="a")
    topic = await log.topic("group:g")
    await log.database.write(open_tree, topic, OWNER, NOON)
    owner, lake = TreeOwner("g", "a", OTHER), tmp_path / "lake"
    for name in ("sealed", "moved"):
        await store.publish(draft(name, group="g", node="a"))
        if name == "sealed":
            await _seal(log, topic, OWNER)
        ship(migrated_sqlite_url, lake, now=NOON + 1)
    tree = await log.database.write(open_tree, topic, owner, NOON)
    await store.publish(draft("later", group="g", node="a"))
    await _seal(log, topic, owner)
    ship(migrated_sqlite_url, lake, now=NOON + 2)
    await log.close()
    log.database.close()
    for name, leaf in (("moved", 1), ("later", 2)):
        _, index, size, _ = plain.open_file(prove_from_lake(connect(str(lake)), name).encode(), tree.log_key, [])
        assert (index, size) == (leaf, 3)
    file = prove_from_lake(connect(str(lake)), "sealed")
    assert (file.leaf.index, read_note(file.leaf.note.encode()).text.split("\n")[1]) == (1, "2")


async def _seal(log: EventLog, topic: int, owner: TreeOwner) -> None:
    hashed = await log.database.read(hash_new, topic)
    assert hashed is not None
    await log.database.write(store_checkpoint, hashed, owner, NOON)
