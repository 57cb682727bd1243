"""Checkpoints of a tree, the proofs that connect them, and the tiles from which proofs follow."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from eventd.api.admin.history.group_trees import find_tree
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Download, Params, Services
from eventd.errors import NotFound
from eventd.log.history.proving import prove_consistency, prove_opening, require_checkpoint
from eventd.log.history.trees import StoredCheckpoint, Tree, read_signed_size, read_tiles, tile_reader
from eventd.store.engine.database import Connection
from federation.errors import MalformedHistory
from federation.history.forms import write_base64
from federation.history.merkle import HASH_SIZE, MAX_SIZE
from federation.history.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, TileAddress, read_tile_path

MOST_TILES: Final = 64
"""Maximum number of tiles of one answer: half a mebibyte."""
_CHECKPOINT: Final = "checkpoint"


class OneTree(Params):
    """A tree of a group."""

    group: str
    tree: str = Field(
        default="", description="The id or the origin of the tree (default: the tree that grows, or the newest)."
    )


class ShowCheckpoint(OneTree):
    """A checkpoint of a tree."""

    size: int | None = Field(default=None, ge=1, le=MAX_SIZE, description="Its size (default: the last checkpoint).")


async def show_checkpoint(services: Services, params: ShowCheckpoint) -> dict[str, Any]:
    """Return a checkpoint as the note that was signed, with the opening entry of its tree and its proof."""
    return await services.database.read(_read_checkpoint, params)


def _read_checkpoint(conn: Connection, params: ShowCheckpoint) -> dict[str, Any]:
    tree = find_tree(conn, params.group, params.tree)
    checkpoint = require_checkpoint(conn, tree, params.size)
    path = [write_base64(one) for one in prove_opening(conn, tree, checkpoint)]
    return {
        **_show(checkpoint),
        "origin": tree.origin,
        "key": tree.log_key,
        "relayed": not tree.epoch,
        "opening": {"note": tree.opening[1:].decode(), "path": path},  # proven above, so it is UTF-8
    }


def _show(checkpoint: StoredCheckpoint) -> dict[str, Any]:
    return {
        "size": checkpoint.size,
        "root": write_base64(checkpoint.root),
        "note": checkpoint.note,
        "signedAt": show_time(checkpoint.signed_at),
    }


class ShowConsistency(OneTree):
    """Two sizes of a tree."""

    old: int = Field(ge=1, le=MAX_SIZE, description="The smaller size.")
    new: int | None = Field(
        default=None, ge=1, le=MAX_SIZE, description="The larger size (default: that of the last checkpoint)."
    )


async def show_consistency(services: Services, params: ShowConsistency) -> dict[str, Any]:
    """Return the proof that a tree begins with all leaves of a smaller one."""
    return await services.database.read(_read_consistency, params)


def _read_consistency(conn: Connection, params: ShowConsistency) -> dict[str, Any]:
    found = prove_consistency(conn, find_tree(conn, params.group, params.tree), params.old, params.new)
    return {
        "origin": found.tree.origin,
        "key": found.tree.log_key,
        "old": found.old,
        "oldRoot": write_base64(found.old_root),
        "new": found.new,
        "newRoot": write_base64(found.new_root),
        "proof": [write_base64(one) for one in found.hashes],
        "checkpoints": [_show(one) for one in found.notes],
    }


class ReadTiles(OneTree):
    """Which tiles to read: those of one level that follow each other."""

    level: int = Field(ge=0, le=MAX_LEVEL, description="Their level.")
    first: int = Field(default=0, ge=0, le=MAX_SIZE, description="The number of the first one.")
    count: int = Field(default=MOST_TILES, ge=1, le=MOST_TILES, description="At most so many.")


async def show_tiles(services: Services, params: ReadTiles) -> dict[str, Any]:
    """Return stored tiles as they are in the last checkpoint; missing ones were pruned."""
    return await services.database.read(_read_tiles, params)


def _read_tiles(conn: Connection, params: ReadTiles) -> dict[str, Any]:
    tree = find_tree(conn, params.group, params.tree)
    found = read_tiles(conn, tree.id, params.level, params.first, params.count)
    size = read_signed_size(conn, tree)
    cut = ((number, hashes[: _width(size, params.level, number) * HASH_SIZE]) for number, hashes in found)
    return {
        "origin": tree.origin,
        "size": size,
        "tiles": [{"number": number, "hashes": write_base64(hashes)} for number, hashes in cut if hashes],
    }


def _width(size: int, level: int, number: int) -> int:
    """Return the number of hashes that a tile has in a tree of this size."""
    return max(0, min(TILE_WIDTH, (size >> level * TILE_HEIGHT) - number * TILE_WIDTH))


class ReadLogFile(Params):
    """A file of a tree in the layout of C2SP tlog-tiles."""

    group: str
    tree: str
    file: str = Field(description="`checkpoint`, or the path of a tile such as `tile/0/x001/234` or `tile/1/000.p/17`.")


async def read_log_file(services: Services, params: ReadLogFile) -> Download:
    """Return a file of a tree as existing tools for transparency logs read it."""
    return await services.database.read(_read_file, params)


def _read_file(conn: Connection, params: ReadLogFile) -> Download:
    tree = find_tree(conn, params.group, params.tree)
    if params.file == _CHECKPOINT:
        return Download(_CHECKPOINT, require_checkpoint(conn, tree).note.encode(), media="text/plain", charset="utf-8")
    try:
        address = read_tile_path(params.file)
    except MalformedHistory as error:
        raise NotFound(f"{tree.origin} has no such file: {error.message}") from None
    return Download(params.file.replace("/", "-"), _read_tile(conn, tree, address))


def _read_tile(conn: Connection, tree: Tree, address: TileAddress) -> bytes:
    """Return a tile that the last checkpoint covers. Raises NotFound."""
    size = read_signed_size(conn, tree)
    width = _width(size, address.level, address.number)
    if address.width > width:
        raise NotFound(f"{tree.origin} of size {size} has no {address.path()}: it has {width} hashes there")
    try:
        return tile_reader(conn, tree.id)(address)[: address.width * HASH_SIZE]
    except MalformedHistory as error:
        raise NotFound(
            f"{tree.origin}: {error.message} any more",
            hint="old tiles are deleted after a while; with a lake, prove the event from the lake",
        ) from None
