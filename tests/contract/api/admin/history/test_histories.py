"""What the API shows and proves of histories; what it hands out is judged by the second implementation."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.admin.history import event_proofs
from eventd.api.admin.history.checkpoints import ReadLogFile, read_log_file
from eventd.api.framework.operations import Download
from eventd.errors import Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import close_tree
from eventd.log.history.proving import NotProven
from eventd.log.history.trees import UNPROVEN
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.keys import WITNESS, learn_key
from eventd.log.witnesses.offers import OfferFrom
from eventd.store.engine.statements import execute
from eventd.testing import NOW, ManualClock
from federation.history.notes import WITNESS_KEY, NoteKey
from federation.history.policy import read_policy
from federation.history.tiles import open_tiles, read_tile_path
from federation.history.witnessing import KeySource, KnownKey
from tests.support import plain_history as plain
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger
from tests.support.growing_tree import GrowingTree
from tests.support.histories import OWNER, emit, signed, start

NODE = OWNER._replace(node="a")


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a, which keeps a history."""
    found = GroupLedger(log, clock)
    await found.declare(spec="history: {mode: record}")
    return found


async def sealed(books: GroupLedger, count: int) -> int:
    """Emit events e0, e1, … into a new tree and seal it; return the id of the topic."""
    topic, _ = await start(books.log, NODE)
    await emit(books.log, topic, *(f"e{number}" for number in range(count)))
    await signed(books.log, topic, NODE)
    return topic


async def key_of(books: GroupLedger) -> str:
    answer = await books.call("history.keys", group="g")
    return str(answer["trees"][0]["key"])


async def reason(books: GroupLedger, operation: str, **params: Any) -> str:
    with pytest.raises(NotProven) as caught:
        await books.call(operation, group="g", **params)
    return caught.value.reason


@on_sqlite
async def test_a_proof_is_a_file_that_a_third_party_accepts(books: GroupLedger) -> None:
    await sealed(books, 5)
    answer = await books.call("history.prove", group="g", id="e3")
    file = json.dumps(answer["file"]).encode()
    digest, index, size, _ = plain.open_file(file, await key_of(books), [])
    assert (answer["leaf"], answer["digest"], answer["tree"]) == (index, digest.hex(), answer["origin"][-16:])
    assert (index, size, json.loads(answer["file"]["event"])["id"]) == (4, 6, "e3")
    without = await books.call("history.prove", group="g", id="e3", digestOnly=True)
    assert without["file"].keys() == {"format", "digest", "proof", "opening"}


@on_sqlite
async def test_a_tree_whose_opening_entry_was_changed_is_shown_as_damaged(books: GroupLedger) -> None:
    await sealed(books, 1)
    changed = "UPDATE trees SET opening = ?"
    await books.log.database.write(execute, changed, (b"\x00" + unsigned_opening(await key_of(books)),))
    (shown,) = (await books.call("history.status", group="g"))["groups"][0]["trees"]
    assert shown["reason"] == ""
    assert shown["damage"].startswith("its opening entry is not the one that was signed: ")
    await books.log.database.write(execute, changed, (b"\x00\xff",))
    assert await reason(books, "history.checkpoint") == "damaged"


def unsigned_opening(key: str) -> bytes:
    """An opening entry without a signature."""
    return f"{key.split('+')[0]}\n{key}\nfirst\n1\n{NOW}\n-\n-\n-\n\n— {key.split('+')[0]} AAAAAAA=\n".encode()


async def test_each_record_of_an_event_has_its_own_proof(books: GroupLedger) -> None:
    topic, _ = await start(books.log, NODE)
    for expiry in ("2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"):
        await books.call(
            "events.emit",
            group="g",
            events=[{"id": "e", "type": "t", "observedAt": "2026-11-20T12:00:00Z", "expiresAt": expiry}],
        )
    await signed(books.log, topic, NODE)
    leaves = [(await books.call("history.prove", group="g", id="e", record=one))["leaf"] for one in ("first", "latest")]
    assert leaves == [1, 2]


@on_sqlite
async def test_the_leaf_of_an_event_is_known_before_its_checkpoint(books: GroupLedger) -> None:
    topic = await sealed(books, 2)
    await emit(books.log, topic, "new")
    answer = await books.call("history.leaf", group="g", id="new")
    assert (answer["leaf"], answer["sealed"], answer["size"]) == (3, False, 3)
    assert await reason(books, "history.prove", id="new") == "unsealed"
    await signed(books.log, topic, NODE)
    assert (await books.call("history.leaf", group="g", id="new"))["sealed"]


@on_sqlite
async def test_the_leaf_of_an_event_that_has_its_id_is_found_without_the_refuted_records(
    books: GroupLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sealed(books, 1)
    monkeypatch.delattr(event_proofs, "find_refuted")
    assert (await books.call("history.leaf", group="g", id="e0"))["leaf"] == 1


@on_sqlite
async def test_what_cannot_be_proven_says_why(books: GroupLedger) -> None:
    assert await reason(books, "history.checkpoint") == "no_history"
    topic = await sealed(books, 3)
    with pytest.raises(NotFound, match="no event nothing"):
        await books.call("history.prove", group="g", id="nothing")
    with pytest.raises(NotFound, match="no tree abc"):
        await books.call("history.checkpoint", group="g", tree="abc")
    await books.log.database.write(evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=NOW)
    assert await reason(books, "history.prove", id="e0") == "evicted"
    assert await reason(books, "history.checkpoint", size=2) == "no_checkpoint"


@on_sqlite
async def test_the_status_shows_all_trees_and_what_is_not_sealed(books: GroupLedger) -> None:
    assert (await books.call("history.status"))["groups"] == [
        {
            "group": "g",
            "node": "a",
            "mode": "record",
            "trees": [],
            "relayed": [],
            "waiting": None,
            "waitingIsExact": True,
        }
    ]
    topic = await sealed(books, 300)
    await emit(books.log, topic, "new")
    [shown] = (await books.call("history.status", group="g"))["groups"][0]["trees"]
    assert (shown["size"], shown["unsealed"], shown["open"], shown["reason"]) == (301, 1, True, "first")
    assert shown["tileBytes"] == 32 * (301 + 1)
    await books.log.database.write(execute, "UPDATE trees SET trouble = 'a tile is missing'")
    await start(books.log, NODE)
    trees = (await books.call("history.status"))["groups"][0]["trees"]
    assert [(one["open"], one["damage"]) for one in trees] == [(True, ""), (False, "a tile is missing")]
    assert not any(one["unproven"] for one in trees)


async def test_the_status_shows_trees_of_peers_apart(books: GroupLedger) -> None:
    await sealed(books, 2)
    await books.log.database.write(execute, "UPDATE trees SET epoch = ''")
    shown = (await books.call("history.status"))["groups"][0]
    assert shown["trees"] == []
    [relayed] = shown["relayed"]
    assert (relayed["size"], relayed["open"], relayed["damage"], relayed["unproven"]) == (3, True, "", False)
    await books.log.database.write(execute, "UPDATE trees SET trouble = ?", (UNPROVEN,))  # as after a reset
    [reset] = (await books.call("history.status"))["groups"][0]["relayed"]
    assert (reset["damage"], reset["unproven"]) == ("", True)
    answer = await books.call("history.checkpoint", group="g", tree=relayed["tree"])
    assert (answer["origin"], answer["size"]) == (relayed["origin"], 3), "it is shown where it is named"


async def test_of_a_relayed_tree_no_more_is_shown_than_the_last_checkpoint_that_its_tiles_reach(
    books: GroupLedger,
) -> None:
    await sealed(books, 5)
    last = await books.call("history.checkpoint", group="g")
    await books.log.database.write(execute, "UPDATE trees SET size = 9, epoch = ''")  # tiles of a larger tree
    which = {"group": "g", "tree": last["origin"][-16:]}
    proof = await books.call("history.consistency", **which, old=2)
    assert (proof["new"], proof["newRoot"]) == (last["size"], last["root"])
    with pytest.raises(Invalid, match="the sealed tree has size 6"):
        await books.call("history.consistency", **which, old=2, new=7)
    assert (await books.call("history.tiles", **which, level=0))["size"] == 6
    with pytest.raises(NotFound, match=r"of size 6 has no tile/0/000\.p/7"):
        await log_files(books, which["tree"], "tile/0/000.p/7")


async def test_an_id_that_two_nodes_gave_to_a_tree_is_not_guessed(books: GroupLedger) -> None:
    await sealed(books, 1)
    mine = (await books.call("history.checkpoint", group="g"))["origin"]
    copied = "opening, log_key, opened_at, size, position, trouble"
    for node in ("c", "d"):
        sql = (
            f"INSERT INTO trees (topic_id, origin, epoch, {copied}) SELECT topic_id, ?, '', {copied} FROM trees LIMIT 1"
        )
        await books.log.database.write(execute, sql, (f"eventd/g/{node}/{'t' * 16}",))
    with pytest.raises(Invalid, match="2 trees of other nodes have the id tttt") as refused:
        await books.call("history.tiles", group="g", tree="t" * 16, level=0)
    assert all(f"eventd/g/{node}/{'t' * 16}" in refused.value.hint for node in ("c", "d"))
    for origin in (f"eventd/g/d/{'t' * 16}", mine):
        assert (await books.call("history.tiles", group="g", tree=origin, level=0))["origin"] == origin


@on_sqlite
async def test_a_tree_of_which_only_a_checkpoint_is_held_is_named_with_its_node(books: GroupLedger) -> None:
    topic, tree = await sealed(books, 2), GrowingTree(node="c").grow("x")
    offered = OfferFrom(topic, "g", "c", KeySource.SHARED, {}, ("c",), tree.offer())
    assert (await books.log.database.write(decide, offered, NOW)).error is None
    with pytest.raises(NotFound, match="it is a tree of c, of which this node holds only a checkpoint, of size 2"):
        await books.call("history.checkpoint", group="g", tree=str(tree.origin)[-16:])


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("{mode: record}", "no key of c is pinned here"),
        (
            f"{{mode: record, keys: [{{node: c, logKey: {GrowingTree(node='c').signer.key.text()}}}]}}",
            "the pinned key of c signed",
        ),
    ],
    ids=["no-pin", "pin"],
)
@on_sqlite
async def test_the_proof_of_a_peer_needs_a_tree_of_the_node_that_admitted_the_event(
    books: GroupLedger, spec: str, reason: str
) -> None:
    await books.declare("hub", spec=f"history: {spec}")
    topic, tree = await sealed(books, 2), GrowingTree(node="hub").grow("x")
    offered = OfferFrom(topic, "g", "hub", KeySource.SHARED, {}, ("hub",), tree.offer())
    assert (await books.log.database.write(decide, offered, NOW)).error is None
    await emit(books.log, topic, "far", path="c,hub")
    with pytest.raises(NotProven, match=f"no tree of c, which admitted the event: .*{reason}") as refused:
        await books.call("history.prove_at_peer", group="g", peer="hub", id="far")
    assert refused.value.reason == "other_node"


@on_sqlite
async def test_the_proof_of_a_peer_that_keeps_no_history_needs_a_history_and_no_pin(books: GroupLedger) -> None:
    await books.declare("b", spec="history: {mode: record}")
    topic = await sealed(books, 2)
    await emit(books.log, topic, "far", path="b")
    with pytest.raises(NotProven, match=r"b is a peer, and has shown no checkpoint here") as refused:
        await books.call("history.prove_at_peer", group="g", peer="b", id="far")
    assert "set history.mode: record in the EventGroup at b" in refused.value.hint


@on_sqlite
async def test_keys_are_a_policy_file(books: GroupLedger) -> None:
    await sealed(books, 1)
    answer = await books.call("history.keys", group="g")
    assert answer["policy"] == f"log {answer['trees'][0]['key']}\nquorum none\n"
    plain.open_vkey(answer["trees"][0]["key"])


@on_sqlite
async def test_the_policy_file_has_the_witnesses_that_are_known_and_requires_none(books: GroupLedger) -> None:
    topic = await sealed(books, 1)
    keys = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (7, 8))
    public, other = (key.public_key().public_bytes_raw() for key in keys)
    for node, key in {"b": public, "none": other, "same": public}.items():
        known = KnownKey(key, KeySource.SHARED)
        await books.log.database.write(learn_key, topic, node, WITNESS, known, {}, 1)
    policy = (await books.call("history.keys", group="g"))["policy"]
    read = read_policy(policy)
    assert [*read.witnesses] == ["b", "eventd/g/none/witness"]
    assert read.witnesses["b"] == NoteKey("eventd/g/b/witness", WITNESS_KEY, public)
    assert read.quorum == "none"
    assert "\n# b: shared\n" in policy


@on_sqlite
async def test_a_checkpoint_comes_with_the_opening_of_its_tree(books: GroupLedger) -> None:
    await sealed(books, 5)
    answer = await books.call("history.checkpoint", group="g")
    size, root, _ = plain.open_checkpoint(answer["note"].encode(), answer["key"], [])
    opening = plain.digest(b"\x00\x00" + answer["opening"]["note"].encode())
    path = [plain.unb64(one) for one in answer["opening"]["path"]]
    assert plain.root_by_path(opening, 0, size, path) == root


@on_sqlite
async def test_two_checkpoints_are_connected_by_a_proof(books: GroupLedger) -> None:
    topic = await sealed(books, 5)
    await emit(books.log, topic, "new")
    await signed(books.log, topic, NODE)
    answer = await books.call("history.consistency", group="g", old=6)
    old, new = [plain.open_checkpoint(one["note"].encode(), answer["key"], []) for one in answer["checkpoints"]]
    hashes = [plain.unb64(one) for one in answer["proof"]]
    assert plain.roots_by_proof(6, 7, hashes, old[1]) == (old[1], new[1])


@on_sqlite
async def test_tiles_are_those_of_the_last_checkpoint(books: GroupLedger) -> None:
    topic = await sealed(books, 300)
    note = (await books.call("history.checkpoint", group="g"))["note"]
    await emit(books.log, topic, "new")
    answer = await books.call("history.tiles", group="g", level=0)
    widths = [(tile["number"], len(base64.b64decode(tile["hashes"])) // 32) for tile in answer["tiles"]]
    assert widths == [(0, 256), (1, 45)]
    tree = str(answer["origin"])[-16:]
    files = await log_files(books, tree, "checkpoint", "tile/0/000", "tile/1/000.p/1", "tile/0/001.p/45")
    assert files["checkpoint"] == Download("checkpoint", note.encode(), "text/plain", "utf-8")
    for tile in open_tiles(301):
        assert len(files[tile.path()].content) == 32 * tile.width
    assert read_tile_path("tile/0/000").width * 32 == len(files["tile/0/000"].content)


async def log_files(books: GroupLedger, tree: str, *names: str) -> dict[str, Download]:
    asked = [ReadLogFile(group="g", tree=tree, file=name) for name in names]
    return {one.file: await read_log_file(books.services, one) for one in asked}


@on_sqlite
async def test_files_that_the_tree_does_not_have_are_not_found(books: GroupLedger) -> None:
    await sealed(books, 3)
    tree = (await books.call("history.checkpoint", group="g"))["origin"][-16:]
    for name in ("tile/0/000", "tile/0/000.p/5", "tile/0/001.p/1", "tile/0/0", "tile/-1/000", "entries/000", "other"):
        with pytest.raises(NotFound):
            await log_files(books, tree, name)


@on_sqlite
async def test_a_group_that_stopped_keeps_its_last_tree_for_readers(books: GroupLedger) -> None:
    topic = await sealed(books, 2)
    await books.log.database.write(close_tree, topic)
    assert (await books.call("history.prove", group="g", id="e1"))["leaf"] == 2
    assert (await books.call("history.checkpoint", group="g"))["size"] == 3


@on_sqlite
async def test_emit_answers_with_the_leaf_of_each_event(books: GroupLedger) -> None:
    _, tree = await start(books.log, NODE)
    answer = await books.call("events.emit", group="g", events=[{"type": "t"}, {"type": "t"}])
    assert [(one["origin"], one["leaf"]) for one in answer["results"]] == [(tree.origin, 1), (tree.origin, 2)]


@on_sqlite
async def test_short_answers_have_the_leaves_of_many_events_as_runs(books: GroupLedger) -> None:
    _, tree = await start(books.log, NODE)

    async def leaves(*ids: str, **how: bool) -> list[dict[str, Any]]:
        events = [{"type": "t", "id": one} for one in ids]
        found: list[dict[str, Any]] = (await books.call("events.emit", group="g", events=events, **how)).get(
            "leaves", []
        )
        for run in found:
            for at in range(run["count"]):
                shown = await books.call("history.leaf", group="g", id=ids[run["index"] + at])
                assert (shown["origin"], shown["leaf"]) == (run["origin"], run["leaf"] + at)
        return found

    assert await leaves("a", "b", "c", brief=True) == [{"index": 0, "count": 3, "origin": tree.origin, "leaf": 1}]
    found = await leaves("d", "a", "e", "f", exceptions=True)
    assert [(run["index"], run["count"], run["leaf"]) for run in found] == [(0, 1, 4), (2, 2, 5)]
    assert await leaves("a", brief=True) == []
    books.log.unsettled_trees.add(tree.id)
    assert await leaves("g", brief=True) == [], "the leaf may still move to another tree"
    answer = await books.call("events.emit", group="g", events=[{"type": "t"}])
    assert "leaf" not in answer["results"][0]
