"""The commands `prove` and `log`: from an event to the sentences that a third party reads, and every way to fail."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.admin.history import group_trees
from eventd.cli.history import lake_trees
from eventd.cli.history.export import count_missing
from eventd.log.core.eventlog import EventLog
from eventd.log.history.trees import UNPROVEN, Tree
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute
from federation.history.checkpoints import Checkpoint, read_origin, sign_checkpoint
from federation.history.fork_file import ForkFile
from federation.history.notes import LOG_KEY, NoteSigner
from federation.history.tiles import root_of
from tests.integration.cli.conftest import Control
from tests.support import plain_history as plain
from tests.support.histories import OWNER, seal_now, start
from tests.support.stopped_nodes import ship

NODE = OWNER._replace(group="edge", node="onprem")
WITNESS = "eventd/edge/cloud/witness"


class Proving:
    """`routerctl` on a database whose group edge keeps a history with the events e0, e1 and e2."""

    def __init__(self, control: Control, url: str) -> None:
        self.control = control
        self.url = url
        control.edge()
        self.seal()
        for number in range(3):
            self.emit(f"e{number}")
        self.seal()
        self.key = control("log", "keys", "-o", "name").lines[0]

    def emit(self, event_id: str) -> None:
        self.control("federation", "event", "emit", "--type", "client.seen", "--id", event_id)

    def seal(self) -> Tree:
        """Open the tree if it is missing, and seal it."""

        async def run() -> Tree:
            with closing(Database(self.url)) as database:
                log = await EventLog.open(database, SystemClock())
                topic, tree = await start(log, NODE, "group:edge")
                await seal_now(log, topic, NODE)
                await log.close()
                return tree

        return asyncio.run(run())

    def change(self, sql: str, *values: object) -> None:
        with closing(Database(self.url)) as database:
            asyncio.run(database.write(execute, sql, values))

    def cosign(self) -> str:
        """Add the cosignature of a witness to the last checkpoint; return the key of the witness."""
        note = self.control("log", "checkpoint").out
        text, _ = plain.open_note(note.encode(), [])
        line = plain.signature_line(text, WITNESS, 4, bytes(32), 1_700_000_000)
        self.change("UPDATE checkpoints SET note = ? WHERE note = ?", note + line, note)
        return plain.vkey(WITNESS, 4, bytes(32))


@pytest.fixture
def proving(control: Control, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_url: str) -> Proving:
    monkeypatch.setenv("EVENTD_DATABASE_URL", migrated_sqlite_url)
    return Proving(control, migrated_sqlite_url)


def test_a_proof_is_checked_without_a_node(proving: Proving, monkeypatch: pytest.MonkeyPatch) -> None:
    control = proving.control
    control("prove", "e1", "--out", "proof.json")
    plain.open_file(Path("proof.json").read_bytes(), proving.key, [])
    monkeypatch.setenv("EVENTD_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    told = control("prove", "check", "proof.json", "--key", proving.key).lines
    assert told[0] == "Proven: the node onprem admitted event e1 of type client.seen to the group edge."
    assert told[1].startswith("It is leaf 2 of the tree ")
    assert "in the checkpoint of size 4," in told[1]
    assert sum(line.startswith("Not proven: ") for line in told) == 4
    answer = control("prove", "check", "proof.json", "--key", proving.key, "-o", "json").json
    assert (answer["proven"], answer["leaf"], answer["cosigned"]) == (True, 2, [])
    assert json.loads(answer["event"])["id"] == "e1"


def test_an_event_is_proven_from_the_lake_without_its_node(proving: Proving, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ship(proving.url, lake, now=SystemClock().now() + 60_000_000, payloads=True)
    elsewhere = ("--lake", str(lake), "--database", "sqlite:////nowhere/at/all.db")
    proving.control("prove", "e1", "--out", "proof.json", *elsewhere)
    assert proving.control("prove", "check", "proof.json", "--key", proving.key).lines[0].startswith("Proven: ")
    assert proving.control("prove", "e1", *elsewhere, "-o", "json").json["leaf"] == 2
    proving.control("prove", "unknown", *elsewhere, code=3)
    proving.control("prove", "e1", "--size", "4", *elsewhere, code=2)
    proving.control.file(f"log {proving.key}\nquorum none\n", "known.policy")
    assert proving.control("prove", "e1", *elsewhere, "--policy", "known.policy", "-o", "json").json["leaf"] == 2
    proving.control("prove", "e1", "--policy", "known.policy", code=2)


def test_a_proof_goes_to_stdout_and_may_leave_the_event_out(proving: Proving) -> None:
    file = proving.control("prove", "e0", "--no-event").json
    assert "event" not in file
    assert proving.control("prove", "event", "e0", "-o", "json").json["leaf"] == 1


def test_a_changed_proof_proves_nothing(proving: Proving) -> None:
    proving.control("prove", "e1", "--out", "proof.json")
    text = Path("proof.json").read_text()
    for name, was, now in (("event", "client.seen", "client.gone"), ("index", "index 2", "index 3")):
        proving.control.file(text.replace(was, now), "changed.json")
        told = proving.control("prove", "check", "changed.json", "--key", proving.key, code=4)
        assert "changed.json proves nothing" in told.err, name
        assert told.out == ""
    other = plain.vkey("eventd/edge/onprem/aaaaaaaaaaaaaaaa", 1, bytes(32))
    told = proving.control("prove", "check", "proof.json", "--key", other, code=4)
    assert "no known key is that of the tree" in told.err


def test_what_is_not_a_proof_is_bad_input_and_not_a_verdict(proving: Proving) -> None:
    proving.control("prove", "e1", "--out", "proof.json")
    text = Path("proof.json").read_text()
    proof = json.loads(text)
    no_format = {name: value for name, value in proof.items() if name != "format"}
    files = {
        "": "it is empty",
        "a text\n": "it is not JSON, at line 1, column 1",
        "\x00\x01": "it is not JSON",
        "[1]": "it is a JSON array, and not an object",
        "[" * 100_000: "it is nested too deeply",
        '{"format": ' + "9" * 5000 + "}": "it has a number with too many digits",
        '{"format": "eventd-proof/1"}': "it has no member proof",
        '{"kind": "EventGroup"}': "it does not name its format, eventd-proof/1",
        json.dumps({**proof, "format": "x/1"}): "its format is 'x/1', not eventd-proof/1",
        json.dumps(no_format): "it does not name its format",
        json.dumps({**proof, "proof": 7}): "its member proof is a JSON number, and not a string",
        json.dumps({**proof, "extra": 7}): "it has a member 'extra', which the format does not have",
        json.dumps({**proof, "opening": {**proof["opening"], "path": [1]}}): "its member opening.path[0] is a JSON",
        text.replace("index 2", "index 9" + "9" * 40): "the index of the leaf is",
        text.replace('"eventd-proof/1"', '"eventd-fork/1"'): "it has a member",
        proving.control("log", "checkpoint").out: "it is not JSON, at line 1, column 1",
        " " * (4 * 1024 * 1024 + 1): "it is larger than a proof file",
    }
    for content, why in files.items():
        Path("given.json").write_text(content)
        told = proving.control("prove", "check", "given.json", "--key", proving.key, code=1)
        assert f"given.json is not a proof: {why}" in told.err
    Path("given.json").write_bytes(b"\xff\xfe")
    told = proving.control("prove", "check", "given.json", "--key", proving.key, code=1)
    assert "it is not a text in UTF-8" in told.err
    Path("folder").mkdir()
    assert (
        "folder is not a regular file" in proving.control("prove", "check", "folder", "--key", proving.key, code=1).err
    )


def test_keys_that_cannot_be_read_are_an_error_and_not_a_verdict(proving: Proving) -> None:
    proving.control("prove", "e1", "--out", "proof.json")
    assert "NAME+ID+KEY" in proving.control("prove", "check", "proof.json", "--key", "nonsense", code=1).err
    proving.control("prove", "check", "nothing.json", "--key", proving.key, code=1)
    assert "--key VKEY or --policy FILE" in proving.control("prove", "check", "proof.json", code=2).err
    proving.control.file("log x\n", "bad.policy")
    proving.control("prove", "check", "proof.json", "--policy", "bad.policy", code=1)


def test_a_policy_may_require_witnesses(proving: Proving) -> None:
    control = proving.control
    control.file(control("log", "keys").out, "trusted.policy")
    control("prove", "e1", "--out", "proof.json")
    control("prove", "check", "proof.json", "--policy", "trusted.policy")
    told = control("prove", "check", "proof.json", "--policy", "trusted.policy", "--witnesses", "1", code=4)
    assert "0 of the witnesses that you know cosigned" in told.err
    witness = proving.cosign()
    control.file(f"log {proving.key}\nwitness cloud {witness}\nquorum cloud\n", "witnessed.policy")
    assert "quorum cloud" in control("prove", "check", "proof.json", "--policy", "witnessed.policy", code=4).err
    control("prove", "e1", "--out", "proof.json")
    told = control("prove", "check", "proof.json", "--policy", "witnessed.policy", "--witnesses", "1")
    assert f"It was there by 2023-11-14T22:13:20Z: the witness {WITNESS} cosigned the checkpoint then." in told.lines
    keys = ("--key", proving.key, "--key", witness)
    assert control("prove", "check", "proof.json", *keys, "--witnesses", "1").out == told.out


def test_the_file_of_a_fork_is_checked_as_well(proving: Proving) -> None:
    origin = proving.key.split("+")[0]
    signer = NODE.signer(read_origin(origin))
    notes = [sign_checkpoint(Checkpoint(read_origin(origin), 4, bytes([byte]) * 32), signer) for byte in (1, 2)]
    proving.control.file(ForkFile((notes[0], notes[1])).encode().decode(), "fork.json")
    told = proving.control("prove", "check", "fork.json", "--key", proving.key).lines
    assert (
        told[0] == f"Proven: the key of the node onprem signed two histories of the tree {origin}: two roots at size 4."
    )
    proving.control.file(ForkFile((notes[0], notes[0])).encode().decode(), "none.json")
    proving.control("prove", "check", "none.json", "--key", proving.key, code=4)


def test_what_cannot_be_proven_exits_with_4_and_says_why(proving: Proving) -> None:
    proving.emit("new")
    assert "is in no checkpoint yet" in proving.control("prove", "new", code=4).err
    assert "has no event nothing" in proving.control("prove", "nothing", code=3).err


def test_the_status_lists_trees(proving: Proving) -> None:
    proving.emit("new")
    [row] = proving.control("log", "status").lines[1:]
    assert row.split()[0:2] + row.split()[3:6] == ["edge", "onprem", "open", "4", "1"]
    proving.change("UPDATE trees SET trouble = 'a tile is missing'")
    told = proving.control("log", "status", "-o", "wide")
    assert "damaged" in told.out
    assert "a tile is missing" in told.out
    proving.change("UPDATE trees SET trouble = '', epoch = ''")
    assert "relayed" in proving.control("log", "status").out
    proving.change("UPDATE trees SET trouble = ?", UNPROVEN)
    [row] = proving.control("log", "status").lines[1:]
    assert row.split()[3] == "unproven", "an honest tree after a reset is not damaged"


def test_a_kept_checkpoint_shows_what_was_changed_later(proving: Proving) -> None:
    control = proving.control
    control("log", "checkpoint", "--out", "kept.txt")
    proving.emit("new")
    proving.seal()
    told = control("log", "consistency", "kept.txt")
    assert "of size 5 begins with all leaves of size 4" in told.out
    assert told.err == ""
    assert "give a checkpoint that you kept" in control("log", "consistency", "2", "4").err
    kept = Path("kept.txt").read_text().split("\n")
    other = Checkpoint(read_origin(kept[0]), 4, bytes(32))
    Path("other.txt").write_bytes(sign_checkpoint(other, NODE.signer(kept[0])).encode())
    told = control("log", "consistency", "other.txt", code=4)
    assert all(text in told.err for text in ("another root at size 4", plain.b64(bytes(32)), kept[2]))
    control.file("no checkpoint", "bad.txt")
    control("log", "consistency", "bad.txt", code=1)


@pytest.mark.parametrize(("line", "changed"), [(1, "3"), (1, "9"), (2, plain.b64(bytes(32)))])
def test_a_kept_checkpoint_that_was_changed_accuses_no_node(proving: Proving, line: int, changed: str) -> None:
    kept = proving.control("log", "checkpoint").out.split("\n")
    kept[line] = changed
    proving.control.file("\n".join(kept), "changed")
    told = proving.control("log", "consistency", "changed", code=1).err
    assert f"changed is not a checkpoint of {kept[0]} that the key {proving.key} signed" in told
    assert "the note was changed" in told


def test_a_kept_checkpoint_that_is_larger_than_the_tree_shows_that_the_node_was_rolled_back(proving: Proving) -> None:
    control, origin = proving.control, read_origin(proving.key.split("+")[0])
    larger = Checkpoint(origin, 9, bytes(32))
    Path("kept").write_bytes(sign_checkpoint(larger, NODE.signer(str(origin))).encode())
    told = control("log", "consistency", "kept", code=4).err
    assert f"has signed 9 leaves of {origin}, as kept shows, and its tree has 4" in told
    assert "rolled back" in told
    assert "keep kept, it is the evidence" in told
    assert "the sealed tree has size 4" in control("log", "consistency", "kept", "5", code=1).err
    thief = NoteSigner(str(origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"9" * 32))
    Path("kept").write_bytes(sign_checkpoint(larger, thief).encode())
    assert "shows another key for" in control("log", "consistency", "kept", code=1).err


def test_a_node_does_not_escape_a_kept_checkpoint_by_another_key(proving: Proving) -> None:
    control, known = proving.control, proving.key
    origin = read_origin(known.split("+")[0])
    control("log", "checkpoint", "--out", "kept")
    control.file(control("log", "keys").out, "known.policy")
    control.file(f"{known}\n", "known")
    for given in (known, "known", "known.policy"):
        assert "Consistent: " in control("log", "consistency", "kept", "--tree-key", given).out
    other = plain.vkey(str(origin), 1, bytes(32))
    proving.change("UPDATE trees SET log_key = ?", other)
    told = control("log", "consistency", "kept", code=1).err
    assert f"the node shows another key for {origin} than the one that signed kept" in told
    assert "--tree-key KEY" in told
    for given in (known, "known", "known.policy"):
        told = control("log", "consistency", "kept", "--tree-key", given, code=4).err
        assert f"the node shows another key for {origin} than the one that signed kept: {other} instead of" in told
        assert known in told
    assert "it proves nothing" in control("log", "consistency", "kept", "--tree-key", other, code=1).err
    elsewhere = plain.vkey(f"{origin}"[:-1], 1, bytes(32))
    assert "is not a key of the tree" in control("log", "consistency", "kept", "--tree-key", elsewhere, code=1).err
    assert "NAME+ID+KEY" in control("log", "consistency", "kept", "--tree-key", "nothing", code=1).err
    control("log", "consistency", "2", "--tree-key", known, code=2)


def test_a_relay_with_fewer_leaves_than_a_kept_checkpoint_is_not_accused(proving: Proving) -> None:
    control, origin = proving.control, read_origin(proving.key.split("+")[0])
    Path("kept").write_bytes(sign_checkpoint(Checkpoint(origin, 9, bytes(32)), NODE.signer(str(origin))).encode())
    proving.change("UPDATE trees SET epoch = ''")  # as the tree of another node is kept
    told = control("log", "consistency", "kept", code=1).err
    assert f"kept has size 9, and this relay has only 4 leaves of {origin} so far" in told


def test_an_exported_tree_gives_the_root_of_its_checkpoint(proving: Proving) -> None:
    control = proving.control
    lines = "".join(f'{{"type": "client.seen", "id": "more-{number}"}}\n' for number in range(600))
    control("federation", "event", "emit", "--stdin", stdin=lines)
    proving.seal()
    first = control("log", "export", "tree", "-o", "json").json
    size, root, _ = plain.open_checkpoint(Path("tree/checkpoint").read_bytes(), Path("tree/key").read_text()[:-1], [])
    assert root_of(size, lambda tile: (Path("tree") / tile.path()).read_bytes()) == root
    assert (first["size"], first["written"], first["pruned"]) == (604, 4, 0)
    shown = control("log", "check", "tree", "--key", proving.key)
    assert f"of size 604, and the tiles that are in tree give its root {root.hex()}" in shown.out
    assert control("log", "check", "tree", "--key", "tree/key", code=1).err.count("give it with --policy") == 1
    proving.emit("new")
    proving.seal()
    again = control("log", "export", "tree", "-o", "json").json
    assert (again["size"], again["written"]) == (605, 1)
    whole = Path("tree/tile/0/000").read_bytes()
    Path("tree/tile/0/000").write_bytes(b"xx" + whole[2:])
    told = control("log", "export", "tree", code=4).err
    assert "tree/tile/0/000 has the hash" in told
    assert "delete this file" in told
    Path("tree/tile/0/000").unlink()
    control("log", "export", "tree")
    assert Path("tree/tile/0/000").read_bytes() == whole
    Path("tree/tile/1/000.p/2").write_bytes(bytes(64))
    assert "give the root" in control("log", "export", "tree", code=4).err
    assert "give the root" in control("log", "check", "tree", "--key", proving.key, code=4).err
    Path("tree/tile/0/000").write_bytes(whole[1:])
    assert "has 8191 bytes, and not 8192" in control("log", "check", "tree", "--key", proving.key, code=4).err


def test_a_folder_whose_last_tile_the_node_has_pruned_is_left_as_it_is(proving: Proving) -> None:
    control = proving.control
    for first in (0, 300):
        lines = "".join(f'{{"type": "client.seen", "id": "more-{first + number}"}}\n' for number in range(300))
        control("federation", "event", "emit", "--stdin", stdin=lines)
        proving.seal()
        if not first:
            control("log", "export", "tree")
    kept = Path("tree/checkpoint").read_bytes()
    proving.change("DELETE FROM tiles WHERE level = 0 AND number = 1")
    told = control("log", "export", "tree", code=4).err
    assert "tile/0/001.p/48 is not stored" in told
    assert "keep tree, and export to another folder; or export from a lake that has it, with --lake" in told
    assert Path("tree/checkpoint").read_bytes() == kept
    control("log", "export", "another")
    shown = control("log", "check", "another", "--key", proving.key, "-o", "json").json
    assert shown["missing"] == 1


def test_only_tiles_of_leaves_count_as_missing_leaves(tmp_path: Path) -> None:
    origin = read_origin(f"eventd/edge/onprem/{'x' * 16}")
    assert count_missing(tmp_path, Checkpoint(origin, 604, bytes(32))) == 3


def test_the_order_of_the_keys_for_an_exported_tree_does_not_matter(proving: Proving) -> None:
    proving.control("log", "export", "tree")
    other = NoteSigner(proving.key.split("+")[0], LOG_KEY, Ed25519PrivateKey.from_private_bytes(bytes(32))).key.text()
    for keys in ((proving.key, other), (other, proving.key)):
        assert "Proven: " in proving.control("log", "check", "tree", "--key", keys[0], "--key", keys[1]).out


def test_an_edited_checkpoint_in_the_folder_accuses_nobody(proving: Proving) -> None:
    proving.control("log", "export", "tree")
    file = Path("tree/checkpoint")
    file.write_text(file.read_text().replace("\n4\n", "\n3\n", 1))
    told = proving.control("log", "export", "tree", code=1).err
    assert "tree/checkpoint was changed after it was signed: it proves nothing, and nothing was written" in told


def test_a_tree_is_not_exported_over_another_one(proving: Proving) -> None:
    control = proving.control
    control("log", "export", "tree")
    files = {path: path.read_bytes() for path in Path("tree").rglob("*") if path.is_file()}
    proving.change("UPDATE trees SET origin = 'eventd/edge/onprem/' || 'x' || substr(origin, 21)")
    other = sign_checkpoint(Checkpoint(read_origin(f"eventd/edge/onprem/{'x' * 16}"), 4, bytes(32)), NODE.signer("x"))
    proving.change("UPDATE checkpoints SET note = ?", other.encode().decode())
    told = control("log", "export", "tree", code=1).err
    assert f"tree holds the tree {proving.key.split('+')[0]}, and not eventd/edge/onprem/{'x' * 16}" in told
    assert {path: path.read_bytes() for path in files} == files
    Path("tree/checkpoint").write_text("something else")
    assert "is not a checkpoint" in control("log", "export", "tree", code=1).err


def test_a_node_of_an_earlier_release_is_asked_for_a_tree_by_its_id(
    proving: Proving, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, named = proving.control, group_trees._is_named
    monkeypatch.setattr(group_trees, "_is_named", lambda origin, name: "/" not in name and named(origin, name))
    control("log", "checkpoint", "--out", "kept")
    assert "Consistent: " in control("log", "consistency", "kept").out
    control("log", "export", "tree")
    proving.emit("new")
    proving.seal()
    control("log", "export", "tree")
    other = f"eventd/edge/other/{read_origin(proving.key.split('+')[0]).tree}"  # nodes choose the ids of their trees
    kept = sign_checkpoint(Checkpoint(read_origin(other), 4, bytes(32)), NODE.signer(other)).encode()
    Path("kept").write_bytes(kept)
    assert f"has no tree {other}" in control("log", "consistency", "kept", code=3).err


@pytest.mark.parametrize("size", [3, 4, 9])
def test_an_export_does_not_replace_the_evidence_of_another_history(proving: Proving, size: int) -> None:
    control, origin = proving.control, read_origin(proving.key.split("+")[0])
    control("log", "export", "tree")
    shown = sign_checkpoint(Checkpoint(origin, size, bytes(32)), NODE.signer(str(origin))).encode()
    Path("tree/checkpoint").write_bytes(shown)  # as the node had signed it before it was rolled back or forked
    files = {path: path.read_bytes() for path in Path("tree").rglob("*") if path.is_file()}
    told = control("log", "export", "tree", code=4).err
    assert f"{origin} of size 4 does not begin with the {size} leaves of tree/checkpoint" in told
    assert "nothing was written" in told
    assert "both are evidence" in told
    assert {path: path.read_bytes() for path in Path("tree").rglob("*") if path.is_file()} == files


def test_an_export_from_a_relay_or_a_lake_that_lags_behind_accuses_no_node(proving: Proving) -> None:
    control, origin = proving.control, read_origin(proving.key.split("+")[0])
    ship(proving.url, Path("lake"), now=SystemClock().now() + 60_000_000)
    control("log", "export", "tree")
    Path("tree/checkpoint").write_bytes(
        sign_checkpoint(Checkpoint(origin, 9, bytes(32)), NODE.signer(str(origin))).encode()
    )
    told = control("log", "export", "tree", "--lake", "lake", code=1).err
    assert f"tree has 9 leaves of {origin}, and this lake has only 4 so far" in told
    proving.change("UPDATE trees SET epoch = ''")  # as the tree of another node is kept
    told = control("log", "export", "tree", "--tree", str(origin), code=1).err
    assert "and this relay has only 4 so far" in told


def test_emit_names_the_leaf_and_waits_for_its_checkpoint(proving: Proving) -> None:
    control = proving.control
    event = ("federation", "event", "emit", "--type", "client.seen", "--id")
    assert "'soon' is not a duration" in control(*event, "odd", "--wait", "sealed", "--timeout", "soon", code=2).err
    assert "odd" not in control("federation", "event", "list").out, "what is wrong is found before the event is stored"
    told = control(*event, "late", "--wait", "sealed", "--timeout", "1ms", code=4)
    assert "event late is stored, but leaf 4 of eventd/edge/onprem/" in told.err
    assert "was in no checkpoint after 1ms: " in told.err
    assert "--timeout is negative" in control(*event, "odd", "--wait", "sealed", "--timeout=-2s", code=2).err
    proving.seal()
    told = control(*event, "late", "--wait", "sealed", "-o", "json")  # a duplicate, which is sealed by now
    assert (told.json["history"]["leaf"], told.json["history"]["size"]) == (4, 5)
    lines = "".join(json.dumps({"type": "t", "id": f"l{number}"}) + "\n" for number in range(3))
    stdin = ("federation", "event", "emit", "--stdin", "--wait", "sealed", "-o", "json")
    told = control(*stdin, "--timeout", "1ms", stdin=f"{lines}7\n", code=4)
    assert (told.json["new"], "event l2 is stored, but leaf 7 of" in told.err) == (3, True)
    assert "not stored: 1 line" in told.err
    proving.seal()
    told = control(*stdin, stdin=lines)
    assert (told.json["history"]["edge"]["leaf"], told.json["history"]["edge"]["size"]) == (7, 8)
    proving.change("UPDATE topics SET tree = NULL")
    assert "is stored, but: the event has no leaf" in control(*event, "last", "--wait", "sealed", code=4).err


def test_a_peer_is_asked_only_for_an_event_that_came_from_another_node(proving: Proving) -> None:
    control = proving.control
    for other in (("--lake", "lake"), ("--size", "2")):
        assert "leave" in control("prove", "e1", "--peer", "cloud", *other, code=2).err
    assert "entered the group at this node" in control("prove", "e1", "--peer", "cloud", code=1).err
    assert "no peer" in control("prove", "e1", "--peer", "nobody", code=3).err


def test_trees_are_read_from_a_lake_without_their_node(proving: Proving) -> None:
    control, lake = proving.control, Path("lake")
    kept = control("log", "checkpoint").out
    ship(proving.url, lake, now=SystemClock().now() + 60_000_000)
    proving.change("DELETE FROM checkpoints")
    control("log", "checkpoint", code=4)
    [row] = control("log", "status", "--lake", "lake").lines[1:]
    assert (row.split()[:2], row.split()[3]) == (["edge", "onprem"], "4")
    assert control("log", "checkpoint", "--lake", "lake").out == kept
    assert control("log", "keys", "--lake", "lake", "-o", "name").lines == [proving.key]
    control("log", "checkpoint", "--lake", "lake", "--size", "2", code=2)
    assert "has no tree" in control("log", "checkpoint", "--lake", "lake", "--tree", "x", code=3).err


def test_a_tree_in_a_lake_is_compared_with_a_kept_checkpoint_and_exported(proving: Proving) -> None:
    control, lake = proving.control, ("--lake", "lake")
    control("log", "checkpoint", "--out", "kept")
    lines = "".join(f'{{"type": "client.seen", "id": "more-{number}"}}\n' for number in range(600))
    control("federation", "event", "emit", "--stdin", stdin=lines)
    proving.seal()
    control("log", "export", "of-node")
    ship(proving.url, Path("lake"), now=SystemClock().now() + 60_000_000)
    proving.change("DELETE FROM tiles")
    said = control("log", "consistency", "kept", *lake)
    assert said.out.startswith("Consistent: eventd/edge/onprem/")
    assert said.out.endswith(" of size 604 begins with all leaves of size 4.\n")
    own = control("log", "consistency", "300", *lake, "-o", "json").json
    assert (own["old"], own["new"], len(own["checkpoints"])) == (300, 604, 1)
    assert "the lake itself named the root" in control("log", "consistency", "300", *lake).err
    assert "the sizes that it has: 604" in control("log", "consistency", "4", "300", *lake, code=3).err
    assert "no consistency proof from size 700 to size 604" in control("log", "consistency", "700", *lake, code=1).err
    exported = control("log", "export", "of-lake", *lake, "-o", "json").json
    assert (exported["size"], exported["written"], exported["pruned"]) == (604, 4, 0)
    files = [path.relative_to("of-node") for path in Path("of-node").rglob("*") if path.is_file()]
    assert all((Path("of-lake") / path).read_bytes() == (Path("of-node") / path).read_bytes() for path in files)
    other = sign_checkpoint(Checkpoint(read_origin(own["origin"]), 4, bytes(32)), NODE.signer(own["origin"]))
    Path("kept").write_bytes(other.encode())
    assert "has another root at size 4 than the checkpoint" in control("log", "consistency", "kept", *lake, code=4).err


def test_a_tree_in_a_lake_is_named_by_its_origin_because_nodes_choose_the_ids(
    proving: Proving, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, choose, named = proving.control, lake_trees._choose, list[str]()
    control("log", "checkpoint", "--out", "kept")
    ship(proving.url, Path("lake"), now=SystemClock().now() + 60_000_000)
    monkeypatch.setattr(lake_trees, "_choose", lambda *given: (named.append(given[-1]), choose(*given))[1])
    control("log", "consistency", "kept", "--lake", "lake")
    control("log", "export", "tree", "--lake", "lake")
    assert named == [proving.key.split("+")[0], "", proving.key.split("+")[0]]


def test_a_tree_of_which_a_lake_lacks_rows_is_neither_proven_nor_exported(proving: Proving) -> None:
    control = proving.control
    ship(proving.url, Path("lake"), now=SystemClock().now() + 60_000_000)
    for file in Path("lake/landing/events").rglob("*.parquet"):
        file.unlink()
    said = control("log", "consistency", "2", "--lake", "lake", code=4).err
    assert "cannot be connected from the lake" in said
    assert "are not complete" in control("log", "export", "tree", "--lake", "lake", code=4).err
