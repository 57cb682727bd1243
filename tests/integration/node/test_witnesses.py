"""Two nodes witness each other: cosignatures in the stored notes, and a database that is an older copy."""

from __future__ import annotations

import json
from typing import TypeVar

import pytest

from eventd.errors import Invalid
from eventd.log.history import bulk_proving
from eventd.log.history.hints import find_hint
from eventd.log.history.proving import NotProven
from eventd.log.history.trees import StoredCheckpoint, Tree, find_open_tree, find_tree_of, read_checkpoint_of
from eventd.log.witnesses.findings import read_findings
from eventd.log.witnesses.offers import WitnessedTree
from eventd.log.witnesses.witnessed import read_of
from eventd.store.engine.database import Connection
from eventd.store.engine.head_file import forget_head
from eventd.store.engine.statements import execute
from eventd.testing import until
from eventd.witnessing.asking import BUSY, HistoryAsker, HistoryUntold
from eventd.witnessing.node_keys import KEY_FILE
from federation.digest import digest
from federation.errors import UnprovenNote
from federation.history.bulk_answers import check_entries, check_range
from federation.history.checkpoints import read_origin
from federation.history.entries import event_entry, read_opening_entry
from federation.history.exchange import HistoryQuestion, ProveAnswer, ProveQuestion, RangeAnswer, RangeQuestion
from federation.history.fork_file import check_fork
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteKey, read_note, read_vkey
from federation.history.proof_file import check_proof
from tests.integration.conftest import MakeSites
from tests.support import plain_history as plain
from tests.support.declared import group, peer
from tests.support.ports import free_port
from tests.support.sites import Site

Answered = TypeVar("Answered", RangeAnswer, ProveAnswer)

RECORD = {"history": {"mode": "record"}}


def read_state(conn: Connection, topic: int) -> tuple[Tree, StoredCheckpoint] | None:
    tree = find_open_tree(conn, topic)
    signed = read_checkpoint_of(conn, tree.id) if tree else None
    return (tree, signed) if tree and signed else None


async def topic_of(site: Site) -> int:
    return await site.running.log.topic("group:edge")


async def sealed(site: Site) -> tuple[Tree, StoredCheckpoint] | None:
    return await site.running.log.database.read(read_state, await topic_of(site))


async def cosigned(site: Site, size: int) -> tuple[Tree, StoredCheckpoint]:
    """Wait for a checkpoint of this size with a cosignature."""
    found: list[tuple[Tree, StoredCheckpoint]] = []

    async def is_there() -> bool:
        state = await sealed(site)
        found[:] = [state] if state else []
        return bool(state and state[1].size == size and len(read_note(state[1].note.encode()).signatures) > 1)

    await until(is_there, f"a cosigned checkpoint of size {size}")
    return found[0]


async def held(site: Site, node: str) -> list[WitnessedTree]:
    return await site.running.log.database.read(read_of, await topic_of(site), node)


async def ask_peer(site: Site, peer: str, question: HistoryQuestion, kind: type[Answered]) -> Answered:
    """Ask a peer as the node does, again as long as it answers another question of the node."""
    member, log = site.running.groups["edge"], site.running.log
    asker = HistoryAsker(member._dependencies.transport, member.ring, log.clock, log.chance.token, None)
    found: list[Answered] = []

    async def is_answered() -> bool:
        try:
            found.append((await asker.ask(member.config, member.config.peers[peer], question, kind))[0])
        except HistoryUntold as untold:
            if untold.reason != BUSY:
                raise
        return bool(found)

    await until(is_answered, "an answer")
    return found[0]


async def kinds(site: Site) -> list[str]:
    found = await site.running.log.database.read(read_findings, await topic_of(site))
    return [finding.kind for finding in found]


@pytest.fixture
async def pair(sites: MakeSites) -> tuple[Site, Site]:
    a, b = sites("a", "b")
    for site in (a, b):
        await site.start()
    await a.join(b, **RECORD)
    await b.join(a, **RECORD)
    return a, b


async def test_a_peer_cosigns_each_checkpoint(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await a.emit("e1", "e2")
    _, signed = await cosigned(a, 3)
    names = [one.name for one in read_note(signed.note.encode()).signatures]
    assert names[1:] == ["eventd/edge/b/witness"]
    leaf = await a.ask("history.leaf", group="edge", id="e2")
    assert (leaf["sealed"], leaf["witnesses"]) == (True, 1)
    [tree] = await held(b, "a")
    assert (tree.size, tree.root) == (3, signed.root)
    count = a.running.metrics.registry.get_sample_value(
        "routerd_eventd_history_cosignatures_total", {"group": "edge", "peer": "b", "result": "cosigned"}
    )
    assert count


async def test_a_peer_proves_many_events_at_once_to_the_node_that_got_them(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await a.emit("e1", "e2", "e3")
    tree, signed = await cosigned(a, 4)
    await b.holds("e1", "e2", "e3")
    bodies = {one.event_id: one.body for one in await b.stored()}
    leaves = [hash_leaf(event_entry(digest(bodies[name].encode()))) for name in ("e1", "e2", "e3")]
    [key] = [one.key for one in await held(b, "a")]
    asked = RangeQuestion(tree=tree.origin, first=1, last=3)
    ranged = await ask_peer(b, "edge-a", asked, RangeAnswer)
    assert check_range(asked, ranged, leaves, key).root == signed.root
    question = ProveQuestion(tree=tree.origin, ids=("e3", "unknown"), indices=(1,))
    answer = await ask_peer(b, "edge-a", question, ProveAnswer)
    _, proven = check_entries(question, answer, [leaves[2], b"", leaves[0]], key)
    assert proven == {0: 3, 2: 1}
    with pytest.raises(HistoryUntold) as untold:
        await ask_peer(b, "edge-a", RangeQuestion(tree=tree.origin, first=1, last=4), RangeAnswer)
    assert untold.value.reason == "refused"


async def test_a_node_has_its_peer_prove_an_event_that_came_from_it(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    await a.emit("e1", "e2", "e3")
    tree, signed = await cosigned(a, 4)
    await b.holds("e1", "e2", "e3")
    with pytest.raises(NotProven):
        await b.ask("history.prove", group="edge", id="e2")
    answer = await b.ask("history.prove_at_peer", group="edge", peer="a", id="e2")
    file = json.dumps(answer["file"]).encode()
    assert plain.open_file(file, tree.log_key, [])[1:3] == (2, signed.size)
    assert (answer["origin"], answer["leaf"]) == (tree.origin, 2)
    await b.running.log.database.write(execute, "DELETE FROM leaf_hints")
    again = await b.ask("history.prove_at_peer", group="edge", peer="a", id="e3", digest_only=True)
    assert "digest" in again["file"], "it is found by its digest"
    assert plain.open_file(json.dumps(again["file"]).encode(), tree.log_key, [])[1] == 3
    monkeypatch.setattr(bulk_proving, "MOST_SEARCHED", 0)  # as if a million leaves followed
    with pytest.raises(NotProven, match="a found no leaf of the event in the last 1,048,576 leaves of eventd/edge/a/"):
        await b.ask("history.prove_at_peer", group="edge", peer="a", id="e3")
    await b.emit("own")
    with pytest.raises(Invalid, match="entered the group at this node"):
        await b.ask("history.prove_at_peer", group="edge", peer="a", id="own")
    await a.stop()
    with pytest.raises(NotProven, match="a did not answer: unreachable"):
        await b.ask("history.prove_at_peer", group="edge", peer="a", id="e2")


async def test_a_node_on_an_older_copy_signs_nothing_in_its_tree_and_states_the_loss(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await a.emit("e1")
    tree, _ = await cosigned(a, 2)
    copy = a.back_up()
    await a.emit("e2", "e3")
    await cosigned(a, 4)
    await a.stop()
    a.restore(copy)
    forget_head(a.file)  # as on another machine: only the peer knows what was signed
    assert (a.file.parent / KEY_FILE).exists()
    await a.start()

    async def is_new() -> bool:
        state = await sealed(a)
        return state is not None and state[0].origin != tree.origin

    await until(is_new, "a new tree")
    state = await sealed(a)
    assert state is not None
    opening = read_opening_entry(state[0].opening).opening
    assert opening.previous is not None
    assert (str(opening.previous.origin), opening.previous.size) == (tree.origin, 2)
    assert await kinds(a) == ["older_copy"]

    async def is_stated() -> bool:
        return await kinds(b) == ["rolled_back"]

    await until(is_stated, "the loss to be stated at the witness")


async def test_a_peer_without_a_history_holds_nothing_up(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    for site in (a, b):
        await site.start()
    await b.join(a)
    await a.join(b, **RECORD)
    await a.emit("e1")
    await b.holds("e1")

    async def is_sealed() -> bool:
        state = await sealed(a)
        return state is not None and state[1].size == 2

    await until(is_sealed, "a checkpoint")
    await a.stop()
    await a.start()
    await a.emit("e2")

    async def is_continued() -> bool:
        state = await sealed(a)
        return state is not None and state[1].size == 3

    await until(is_continued, "the tree to be continued after a start")


async def test_a_rotation_opens_a_tree_that_the_old_key_signed_and_peers_take_the_new_key_over(
    pair: tuple[Site, Site],
) -> None:
    a, b = pair
    await a.emit("e1")
    tree, _ = await cosigned(a, 2)
    answer = await a.ask("history.rotate")
    assert (answer["groups"], answer["lost"]) == (["edge"], False)

    async def is_taken_over() -> bool:
        return len(await held(b, "a")) == 2

    await until(is_taken_over, "the new tree to be cosigned")
    newest = (await held(b, "a"))[0]
    assert newest.origin != tree.origin
    assert newest.key.text().split("+", 2)[2] == answer["key"]
    shown = await b.ask("history.witnesses", group="edge")
    [known] = [one for one in shown["keys"] if (one["node"], one["kind"]) == ("a", "log")]
    assert (known["key"], known["refused"]) == (answer["key"], None)
    assert await kinds(b) == []


async def test_a_key_that_was_lost_is_refused_until_the_peer_resets_it(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await a.emit("e1")
    await cosigned(a, 2)
    await a.ask("history.rotate", lost=True)

    async def is_refused() -> bool:
        shown = await a.ask("history.witnesses", group="edge")
        return [one["state"] for one in shown["witnesses"]] == ["refused"]

    await until(is_refused, "the new key to be refused")
    shown = await b.ask("history.witnesses", group="edge")
    assert [one["refused"] is not None for one in shown["keys"] if one["kind"] == "log"] == [True]
    assert (await b.ask("history.reset", group="edge", node="a"))["trees"] == 1

    async def is_cosigned() -> bool:
        return [one.size for one in await held(b, "a")] == [1]

    await until(is_cosigned, "the new tree to be cosigned")


async def test_two_witnesses_that_exchange_notes_find_that_they_were_shown_two_histories(sites: MakeSites) -> None:
    a, b, c = sites("a", "b", "c")
    for site in (a, b, c):
        await site.start()
    await b.join(**RECORD)
    await c.join(**RECORD)
    await a.join(c, **RECORD)
    await a.emit("e1")
    tree, _ = await cosigned(a, 2)
    copy = a.back_up()
    await a.ask("resources.delete", kind="EventPeer", name="edge-c")
    await a.join(b, **RECORD)
    await a.emit("for-b")
    await cosigned(a, 3)
    await a.stop()
    a.restore(copy)  # it declares c alone, which knows nothing of what b has cosigned
    forget_head(a.file)
    await a.start()
    await a.emit("for-c")
    _, shown = await cosigned(a, 3)
    assert [await kinds(site) for site in (a, b, c)] == [[], [], []]
    await b.join(c, **RECORD)

    async def is_found() -> bool:
        return [await kinds(site) for site in (b, c)] == [["fork"], ["fork"]]

    await until(is_found, "the fork to be found at both witnesses")
    [found] = await c.running.log.database.read(read_findings, await topic_of(c))
    answer = await c.ask("history.finding", group="edge", id=found.id)
    proven = check_fork(json.dumps(answer["file"]).encode(), [read_vkey(tree.log_key, LOG_KEY)])
    assert (proven.first.size, proven.second.size, proven.index) == (3, 3, None)
    assert shown.root in (proven.first.root, proven.second.root)


async def test_a_relay_proves_what_it_passes_on_while_its_node_is_away(sites: MakeSites) -> None:
    a, hub = sites("a", "hub")
    for site in (a, hub):
        await site.start()
    await a.join(hub, **RECORD)
    passes_on = [peer(name, port, group="edge", relay=True) for name, port in (("a", a.port), ("b", free_port()))]
    await hub.apply(group("hub", port=hub.port, secret=hub.secret, name="edge", **RECORD), *passes_on)
    await a.emit("e1", "e2")
    tree, _ = await cosigned(a, 3)
    await hub.holds("e1", "e2")
    await hub.emit("own")  # its checkpoint is offered to a, and what a has signed is pulled then

    async def is_pulled() -> bool:
        kept = await hub.running.log.database.read(find_tree_of, await topic_of(hub), tree.origin)
        return kept is not None and kept.size == 3

    await until(is_pulled, "the tiles of a")
    position = next(one.position for one in await hub.stored() if one.event_id == "e2")
    hint = await hub.running.log.database.read(find_hint, await topic_of(hub), position)
    assert hint == (read_origin(tree.origin).tree, 2), "a said where its leaf is"
    await a.stop()
    answer = await hub.ask("history.prove", group="edge", id="e2")
    file = json.dumps(answer["file"]).encode()
    _, index, size, _ = plain.open_file(file, tree.log_key, [])
    assert (index, size) == (2, 3)
    pinned = NoteKey(tree.origin, LOG_KEY, read_vkey(tree.log_key, LOG_KEY).public)
    proven = check_proof(file, [pinned])
    assert proven.checkpoint.origin.node == "a", "the key of the hub is not needed"
    of_hub, _ = await cosigned(hub, 2)
    with pytest.raises(UnprovenNote):
        check_proof(file, [read_vkey(of_hub.log_key, LOG_KEY)])
