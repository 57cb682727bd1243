"""Go's own code for transparency logs accepts the notes, tiles and proofs."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.admin.history.checkpoints import ReadLogFile, read_log_file
from eventd.log.core.eventlog import EventLog
from eventd.log.core.scan import scan
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.testing import ManualClock
from federation.history.checkpoints import Checkpoint, LogOrigin, read_checkpoint, sign_checkpoint
from federation.history.entries import event_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteSigner
from federation.history.proof_file import read_proof_file
from federation.history.tiles import (
    TileAddress,
    TileBuilder,
    consistency_proof,
    inclusion_proof,
    open_tiles,
    root_of,
)
from tests.support.group_ledger import GroupLedger
from tests.support.histories import emit, signed, start
from tests.support.source import ROOT
from tests.vectors.history import entry

PACKAGES = Path("/usr/share/gocode")
"""Where Debian's golang-golang-x-mod-dev puts the sources."""
SIZE = 70_000
ORIGIN = LogOrigin("edge", "site-a", "k3v9x0q2m7p1a8zd")

pytestmark = [
    pytest.mark.go,
    pytest.mark.skipif(
        not (which("go") and (PACKAGES / "src/golang.org/x/mod").is_dir()),
        reason="needs Go and its package x/mod (Debian: golang-go, golang-golang-x-mod-dev)",
    ),
]


async def test_go_verifies_checkpoint_tiles_and_proofs(tmp_path: Path, migrated_sqlite_url: str) -> None:
    """Those of the pure code, and those that a node hands out: built once, because that takes the longest."""
    judge = tmp_path / "judge"
    go("build", "-o", str(judge), str(ROOT / "tests/support/go/judge.go"), cache=tmp_path / "cache")
    assert said_by(judge, write_log(tmp_path / "log")) == (f"{ORIGIN} {SIZE} 5 4\n", "")
    origin, served = await write_served(tmp_path / "served", migrated_sqlite_url)
    assert said_by(judge, served) == (f"{origin} 604 6 3\n", "")


def go(*arguments: str, cache: Path) -> None:
    env = {"GO111MODULE": "off", "GOPATH": str(PACKAGES), "GOCACHE": str(cache), "PATH": "/usr/bin:/bin"}
    subprocess.run(["go", *arguments], env=env, check=True)


def said_by(judge: Path, folder: Path) -> tuple[str, str]:
    done = subprocess.run([judge, folder], capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


async def write_served(folder: Path, url: str) -> tuple[str, Path]:
    """Write the files that the API serves of a tree with events, and proofs of it; return the origin and the folder."""
    with closing(Database(url)) as database:
        log = await EventLog.open(database, SystemClock())
        books = GroupLedger(log, ManualClock())
        await books.declare()
        topic, tree = await start(log)
        for part, count in enumerate((3, 300, 300)):
            await emit(log, topic, *(f"e{part}-{number}" for number in range(count)))
            await signed(log, topic)
        checkpoint = await books.call("history.checkpoint", group="g")
        for name in ("checkpoint", *(tile.path() for tile in tiles_of(checkpoint["size"]))):
            asked = ReadLogFile(group="g", tree=tree.origin[-16:], file=name)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((await read_log_file(books.services, asked)).content)
        (folder / "vkey").write_text(checkpoint["key"])
        leaves = [hash_leaf(tree.opening)]
        inclusion = []
        for block in await database.read(lambda conn: [*scan(conn, topic, 0, 10**6)]):
            leaves += [hash_leaf(event_entry(sha256(body.encode()).digest())) for body in block.bodies()]
        for event in ("e0-0", "e0-2", "e1-0", "e1-299", "e2-5", "e2-299"):
            file = json.dumps((await books.call("history.prove", group="g", id=event))["file"]).encode()
            proof = read_proof_file(file).leaf
            stated = read_checkpoint(proof.note.text)
            path = [b64encode(one).decode() for one in proof.path]
            root = b64encode(stated.root).decode()
            inclusion.append({"Index": proof.index, "Size": stated.size, "Root": root, "Path": path})
        consistency = []
        for old, new in ((4, 604), (304, 604), (77, 500)):
            found = await books.call("history.consistency", group="g", old=old, new=new)
            roots = {"OldRoot": found["oldRoot"], "NewRoot": found["newRoot"]}
            consistency.append({"Old": old, "New": new, "Proof": found["proof"], **roots})
        given = {"Leaves": [b64encode(one).decode() for one in leaves]}
        (folder / "proofs.json").write_text(json.dumps(given | {"Inclusion": inclusion, "Consistency": consistency}))
        await log.close()
        return tree.origin, folder


def tiles_of(size: int) -> list[TileAddress]:
    """All tiles of a tree of less than 65,536 leaves."""
    whole = [TileAddress(0, number) for number in range(size // 256)]
    return [*whole, *open_tiles(size)]


def write_log(folder: Path) -> Path:
    builder = TileBuilder()
    tiles = builder.extend([hash_leaf(entry(index)) for index in range(SIZE)])
    signer = NoteSigner(str(ORIGIN), LOG_KEY, Ed25519PrivateKey.from_private_bytes(bytes(32)))
    for tile, hashes in tiles.items():
        path = folder / tile.path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashes)
    (folder / "vkey").write_text(signer.key.text())
    (folder / "checkpoint").write_bytes(sign_checkpoint(Checkpoint(ORIGIN, SIZE, builder.root()), signer).encode())
    (folder / "proofs.json").write_text(json.dumps(proofs_from({tile[:2]: hashes for tile, hashes in tiles.items()})))
    return folder


def proofs_from(tiles: dict[tuple[int, int], bytes]) -> dict[str, Any]:
    """Proofs in the whole tree and in smaller ones, all from the tiles of the whole one."""

    def read(tile: TileAddress) -> bytes:
        return tiles[tile.level, tile.number]

    def text(*hashes: bytes) -> list[str]:
        return [b64encode(one).decode() for one in hashes]

    inclusion = [(0, SIZE), (69_999, SIZE), (65_535, 65_537), (256, 257), (300, 1_000)]
    consistency = [(1, SIZE), (65_536, SIZE), (257, 65_537), (1_000, 1_001)]
    return {
        "Inclusion": [
            {
                "Index": at,
                "Size": size,
                "Root": text(root(size, tiles))[0],
                "Path": text(*inclusion_proof(at, size, read)),
            }
            for at, size in inclusion
        ],
        "Consistency": [
            {
                "Old": old,
                "New": new,
                "OldRoot": text(root(old, tiles))[0],
                "NewRoot": text(root(new, tiles))[0],
                "Proof": text(*consistency_proof(old, new, read)),
            }
            for old, new in consistency
        ],
    }


def root(size: int, tiles: dict[tuple[int, int], bytes]) -> bytes:
    """The root of a smaller tree, whose partial tiles are parts of those that have grown."""
    return root_of(size, lambda tile: tiles[tile.level, tile.number])
