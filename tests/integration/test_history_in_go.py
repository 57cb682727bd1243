"""Go's own code for transparency logs accepts the notes, tiles and proofs."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.history.checkpoints import Checkpoint, LogOrigin, sign_checkpoint
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteSigner
from federation.history.tiles import TileAddress, TileBuilder, consistency_proof, inclusion_proof, root_of
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


def test_go_verifies_checkpoint_tiles_and_proofs(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "log")
    done = subprocess.run(
        ["go", "run", str(ROOT / "tests/support/go/judge.go"), str(folder)],
        env={
            "GO111MODULE": "off",
            "GOPATH": str(PACKAGES),
            "GOCACHE": str(tmp_path / "cache"),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{ORIGIN} {SIZE} 5 4\n", "")


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
