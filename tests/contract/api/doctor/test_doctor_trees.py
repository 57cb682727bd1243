"""What doctor says of the trees of histories and of the file with their keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.doctor.trees import (
    DAMAGE_SHOWN,
    PULLED_WITHIN,
    REPLACED_SHOWN,
    SEALED_WITHIN,
    WITNESS_WITHIN,
    check_key_file,
    check_trees,
    read_group_trees,
)
from eventd.api.doctor.witnesses import CHECKED_WITHIN, check_witnesses, read_witness_state
from eventd.log.core.eventlog import EventLog
from eventd.log.history.hints import keep_hints
from eventd.log.witnesses.cosignatures import REFUSED, keep_cosignature, note_witness_state
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.keys import forget_keys
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import forget_trees
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import execute
from eventd.testing import NOW
from eventd.text.duration import DAY
from eventd.witnessing.node_keys import load_history_keys
from federation.history.notes import NoteSignature
from federation.history.witnessing import KeySource
from tests.support.fresh import on_sqlite
from tests.support.growing_tree import GrowingTree
from tests.support.histories import OWNER, emit, signed, start


@dataclass
class PeerStub:
    """The part of a declared peer that the check uses."""

    node_name: str
    relay: bool


def config(mode: str = "record") -> GroupConfig:
    return group_of("g", EventGroupSpec.model_validate({"nodeName": "site-a", "history": {"mode": mode}}))


async def said(log: EventLog, now: int = NOW, *, running: bool = True, mode: str = "record") -> list[tuple[str, str]]:
    facts = await log.database.read(read_group_trees, [config(mode)], now)
    return [(check.code, check.detail) for check in check_trees(facts, now, running=running)]


@on_sqlite
async def test_events_that_wait_for_a_checkpoint_are_reported_after_a_minute(log: EventLog) -> None:
    assert [code for code, _ in await said(log)] == ["history-not-begun"]
    topic, _ = await start(log)
    await emit(log, topic, "a")
    await signed(log, topic)
    assert await said(log, NOW + 10 * SEALED_WITHIN) == []
    await emit(log, topic, "b", "c")
    assert await said(log, NOW + SEALED_WITHIN) == []
    late = NOW + 3 * SEALED_WITHIN
    [(code, detail)] = await said(log, late)
    assert code == "history-unsealed"
    assert "2 leaves of eventd/g/site-a/" in detail
    assert "for 3m0s; the last checkpoint has size 2" in detail
    assert await said(log, late, running=False) == [], "without a node, none is expected"
    assert await said(log, late, mode="off") == []


async def test_a_damaged_tree_is_reported_for_a_week(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a")
    await signed(log, topic)
    await log.database.write(execute, "UPDATE trees SET trouble = 'a tile is missing'")
    await start(log)
    await signed(log, topic)
    [(code, detail)] = await said(log, NOW + DAMAGE_SHOWN - 1)
    assert (code, detail) == (
        "history-damaged",
        f"{tree.origin} ended at size 2, at 2026-11-20T12:00:00Z: a tile is missing",
    )
    assert await said(log, NOW + DAMAGE_SHOWN) == []


async def test_a_key_that_nothing_vouches_for_is_reported_until_its_witnesses_accept_it(log: EventLog) -> None:
    topic, tree = await start(log)
    await signed(log, topic)
    lost = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"2" * 32))
    _, after = await start(log, lost)
    await signed(log, topic, lost)

    async def report(now: int, *peers: str) -> list[str]:
        stubs = {name: PeerStub(name, relay=False) for name in peers}
        declared = replace(config(), peers=stubs)  # type: ignore[arg-type]
        facts = await log.database.read(read_group_trees, [declared], now)
        return [f"{check.code}: {check.detail}" for check in check_trees(facts, now, running=True)]

    [said] = await report(NOW)
    assert said == (
        f"history-key-replaced: {after.origin} is signed with another key than {tree.origin}, and the old key has not"
        " signed the change: history.key was lost or replaced, or an earlier file was put back"
    )
    assert await report(NOW + REPLACED_SHOWN) == []
    for peer in "bc":
        await log.database.write(keep_cosignature, tree.id, peer, 1, NoteSignature("w", b"1234", b"5"), NOW)
    await log.database.write(keep_cosignature, after.id, "b", 1, NoteSignature("w", b"1234", b"5"), NOW)
    [said] = await report(NOW + WITNESS_WITHIN, "b", "c")
    gone = NOW + WITNESS_WITHIN + 1
    assert await report(gone, "b", "c") == [], "a peer without a history, or with v1, cosigns nothing for good"
    await log.database.write(note_witness_state, after.id, "c", REFUSED, "another key", gone)
    [said] = await report(gone, "b", "c")
    assert said.endswith("; not cosigned since by c")
    assert await report(NOW, "b") == [], "and c is no peer any more"


@on_sqlite
async def test_missing_tiles_of_a_relayed_tree_are_reported_after_ten_minutes(log: EventLog) -> None:
    topic, _ = await start(log)
    await signed(log, topic)
    tree = GrowingTree().grow("x", "y")
    offered = OfferFrom(topic, "g", "a", KeySource.SHARED, {}, ["a"], tree.offer())
    assert (await log.database.write(decide, offered, NOW)).error is None

    async def report(now: int, relay: bool = True) -> list[tuple[str, str]]:
        peers = {name: PeerStub(name, relay=relay) for name in ("a", "b")}
        declared = replace(config(), peers=peers)  # type: ignore[arg-type]
        facts = await log.database.read(read_group_trees, [declared], now)
        return [(check.code, check.detail) for check in check_trees(facts, now, running=True)]

    assert await report(NOW + PULLED_WITHIN) == []
    [(code, detail)] = await report(NOW + PULLED_WITHIN + 1)
    assert code == "history-tiles-behind"
    assert "the hashes of 0 of its 3 witnessed leaves" in detail
    assert await report(NOW + PULLED_WITHIN + 1, relay=False) == []
    later = NOW + 90 * DAY
    await log.database.write(forget_trees, topic, "a", later)
    await log.database.write(forget_keys, topic, "a")
    assert (await log.database.write(decide, offered, later)).error is None
    assert await report(later + PULLED_WITHIN) == [], "nothing could be pulled before"
    [(_, detail)] = await report(later + PULLED_WITHIN + SECOND)
    assert "for 10m1s" in detail


@on_sqlite
async def test_the_file_of_the_keys_must_be_there_and_private(log: EventLog, tmp_path: Path) -> None:
    assert [check.code for check in check_key_file(tmp_path)] == ["history-key-missing"]
    load_history_keys(tmp_path, log.chance)
    assert check_key_file(tmp_path) == []
    (tmp_path / "history.key").chmod(0o640)
    [check] = check_key_file(tmp_path)
    assert (check.code, check.remedy) == ("history-key-open", f"chmod 600 {tmp_path / 'history.key'}")


@on_sqlite
async def test_mode_verify_without_pins_and_with_late_checks_is_reported(log: EventLog) -> None:
    topic, _ = await start(log)
    late = NOW + CHECKED_WITHIN + 1
    await log.database.write(keep_hints, topic, [], [1], [1], NOW)

    async def report(declared: GroupConfig) -> list[str]:
        state = await log.database.read(read_witness_state, declared, late)
        assert state is not None
        return [check.code for check in check_witnesses(state)]

    verify = config("verify")
    assert await report(verify) == ["history-verify-unpinned", "history-check-behind"]
    assert await report(replace(verify, history_pins={("b", "log"): b"1" * 32})) == ["history-check-behind"]
    assert await report(config()) == []
