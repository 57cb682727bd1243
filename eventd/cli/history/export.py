"""routerctl log export: writes a tree as files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected_without_table
from eventd.cli.history.kept_checkpoint import read_kept
from eventd.cli.history.lake_trees import FromLakeOption, checkpoint_of_lake, consistency_of_lake, open_in_lake
from eventd.cli.history.log import TreeOption, call_of_tree
from eventd.cli.terminal.output import note
from eventd.errors import CheckFailed, Invalid
from eventd.text.plural import counted

if TYPE_CHECKING:
    from federation.history.checkpoints import Checkpoint
    from federation.history.notes import SignedNote
    from federation.history.tiles import TileAddress

AT_ONCE: Final = 64
"""Tiles of one request: the most that the node returns."""


@connected_without_table
async def export(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; created if it is missing.")],
    group: GroupOption = "",
    tree: TreeOption = "",
    lake: FromLakeOption = "",
) -> None:
    """Write a tree to a folder, in the layout that tools for transparency logs read.

    It is that of C2SP tlog-tiles, without entries: `checkpoint`, `tile/…`, and the public key of the tree in `key`.
    Full tiles that are in the folder already are not requested again, but verified like the others. If the tree does
    not continue the checkpoint in the folder, nothing is written, and it exits with status 4.
    """
    from federation.history.checkpoints import read_checkpoint
    from federation.history.notes import read_note

    name = group if lake else await one_group(session, group)
    if lake:
        answer = checkpoint_of_lake(lake, group, tree)
    else:
        answer = await session.call("history.checkpoint", group=name, tree=tree)
    checkpoint = read_checkpoint(read_note(answer["note"].encode()).text)
    there = _read_there(folder, checkpoint)
    if there is not None:
        await _require_continued(session, folder, *there, checkpoint, answer, lake)
    folder.mkdir(parents=True, exist_ok=True)
    written = pruned = 0
    tiles = _tiles_of_lake(lake, checkpoint, folder) if lake else _tiles(session, name, checkpoint, folder)
    async for address, hashes in tiles:
        written, pruned = written + bool(hashes), pruned + (not hashes)
        if hashes:
            path = folder / address.path()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(hashes)
    require_root(folder, checkpoint)
    require_full_tiles(folder, checkpoint)
    (folder / "key").write_text(f"{answer['key']}\n", encoding="utf-8")
    (folder / "checkpoint").write_text(answer["note"], encoding="utf-8")
    result = {"origin": answer["origin"], "size": checkpoint.size, "written": written, "pruned": pruned}
    if session.out.is_document:
        session.out.value(result)
        return
    lacking = "the lake lacks" if lake else "the node has pruned"
    missing = f"; {lacking} {counted(pruned, 'tile')}" if pruned else ""
    note(f"{folder}: {answer['origin']} of size {checkpoint.size}, {counted(written, 'new tile')}{missing}")


async def _tiles(
    session: Session, group: str, checkpoint: Checkpoint, folder: Path
) -> AsyncIterator[tuple[TileAddress, bytes]]:
    """Yield the tiles of a checkpoint that the folder does not have, with their hashes; none for a pruned one."""
    from federation.history.forms import read_base64
    from federation.history.merkle import HASH_SIZE

    for due in _due_tiles(checkpoint, folder):
        while due:
            asked = {"level": due[0].level, "first": due[0].number, "count": AT_ONCE}
            answer = await call_of_tree(session, "history.tiles", str(checkpoint.origin), group=group, **asked)
            found = {one["number"]: read_base64(one["hashes"], "a tile") for one in answer["tiles"]}
            end = due[0].number + AT_ONCE
            for tile in [tile for tile in due if tile.number < end]:
                yield tile, found.get(tile.number, b"")[: tile.width * HASH_SIZE]
            due = [tile for tile in due if tile.number >= end]


async def _tiles_of_lake(lake: str, checkpoint: Checkpoint, folder: Path) -> AsyncIterator[tuple[TileAddress, bytes]]:
    """Yield the tiles of a checkpoint that the folder does not have, without hashes where the lake lacks some."""
    from federation.errors import MalformedHistory

    found = open_in_lake(lake, checkpoint.origin.group, str(checkpoint.origin))
    for due in _due_tiles(checkpoint, folder):
        for tile in due:
            try:
                yield tile, found.read(tile)
            except MalformedHistory:
                yield tile, b""


def _due_tiles(checkpoint: Checkpoint, folder: Path) -> Iterator[list[TileAddress]]:
    """Yield the tiles of a checkpoint that the folder does not have, for each level."""
    from federation.history.merkle import HASH_SIZE
    from federation.history.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, TileAddress

    for level in range(MAX_LEVEL + 1):
        hashes = checkpoint.size >> level * TILE_HEIGHT
        tiles = [
            TileAddress(level, number, min(TILE_WIDTH, hashes - number * TILE_WIDTH))
            for number in range(-(-hashes // TILE_WIDTH))
        ]
        yield [tile for tile in tiles if not _is_there(folder / tile.path(), tile.width * HASH_SIZE)]


def count_missing(folder: Path, checkpoint: Checkpoint) -> int:
    """Return how many tiles of leaves of a checkpoint the folder lacks, as they were pruned."""
    return len(next(_due_tiles(checkpoint, folder)))


def require_whole_tiles(folder: Path, checkpoint: Checkpoint) -> None:
    """Raise CheckFailed if a tile is in the folder with another length than it has."""
    from federation.history.merkle import HASH_SIZE

    for tile in (tile for level in _due_tiles(checkpoint, folder) for tile in level):
        path = folder / tile.path()
        if path.exists():
            raise CheckFailed(
                f"{path} has {path.stat().st_size} bytes, and not {tile.width * HASH_SIZE}",
                hint="delete this file and export again",
            )


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _read_there(folder: Path, checkpoint: Checkpoint) -> tuple[SignedNote, Checkpoint] | None:
    """Return the checkpoint that a folder holds, if any, and its note.

    Raises Invalid if it is of another tree: the export would replace that tree's checkpoint and key.
    """
    hint = "export to an empty folder"
    try:
        signed, there = read_kept(folder / "checkpoint", hint)
    except FileNotFoundError:
        return None
    if there.origin != checkpoint.origin:
        raise Invalid(f"{folder} holds the tree {there.origin}, and not {checkpoint.origin}", hint=hint)
    return signed, there


async def _require_continued(
    session: Session,
    folder: Path,
    signed: SignedNote,
    there: Checkpoint,
    checkpoint: Checkpoint,
    answer: Mapping[str, Any],
    lake: str,
) -> None:
    """Raise CheckFailed unless a tree begins with the leaves of the checkpoint that a folder holds.

    The export would replace that checkpoint, which is the evidence of a history that was rolled back or forked.
    Raises Invalid if a relay or a lake has fewer leaves: they get them later than the tree's node signs them.
    """
    from federation.errors import HistoryError
    from federation.history.forms import read_hash
    from federation.history.proofs import verify_consistency

    origin, old, new = str(checkpoint.origin), there.size, checkpoint.size
    source = "lake" if lake else "relay"
    if new < old and (
        lake or answer.get("relayed", True)
    ):  # a node of an earlier release does not say whose tree it is
        raise Invalid(
            f"{folder} has {old} leaves of {origin}, and this {source} has only {new} so far",
            hint=f"repeat it later, or export from {checkpoint.origin.node} itself",
        )
    try:
        if old >= new:
            proof = []
        elif lake:
            proof = consistency_of_lake(lake, checkpoint.origin.group, origin, old, new)["proof"]
        else:
            asked = {"group": checkpoint.origin.group, "old": old, "new": new}
            proof = (await call_of_tree(session, "history.consistency", origin, **asked))["proof"]
    except CheckFailed as error:
        detail: Mapping[str, Any] = getattr(error, "detail", None) or {}
        if detail.get("reason") == "pruned":  # the proof needs more leaves of the last tile than the folder has
            error.hint = f"keep {folder}, and export to another folder; or export from a lake that has it, with --lake"
        raise
    try:
        hashes = [read_hash(one, "a hash of the proof") for one in proof]
        verify_consistency(old, there.root, new, checkpoint.root, hashes)
    except HistoryError as error:
        _require_unchanged(folder, signed, answer["key"])
        raise CheckFailed(
            f"{origin} of size {new} does not begin with the {old} leaves of {folder / 'checkpoint'}: {error.message};"
            " nothing was written",
            hint=f"keep {folder}, and the new checkpoint too (routerctl log checkpoint --tree {origin} --out FILE):"
            " both are evidence that the history was rolled back or forked",
        ) from None


def _require_unchanged(folder: Path, signed: SignedNote, shown: str) -> None:
    """Raise Invalid unless the key in the folder, or the one that is `shown`, signed the folder's checkpoint.

    A checkpoint that was changed since accuses no node.
    """
    from federation.errors import HistoryError
    from federation.history.checkpoints import open_checkpoint
    from federation.history.notes import LOG_KEY, read_vkey

    kept = folder / "key"
    for text in (kept.read_text(encoding="utf-8", errors="replace").strip() if kept.is_file() else "", shown):
        with suppress(HistoryError):
            open_checkpoint(signed, read_vkey(text, LOG_KEY))
            return
    raise Invalid(
        f"{folder / 'checkpoint'} was changed after it was signed: it proves nothing, and nothing was written",
        hint="export to an empty folder",
    )


def require_root(folder: Path, checkpoint: Checkpoint) -> None:
    """Raise CheckFailed unless the written tiles give the root of the checkpoint."""
    from federation.errors import HistoryError
    from federation.history.tiles import root_of

    try:
        root = root_of(checkpoint.size, lambda tile: (folder / tile.path()).read_bytes())
    except (OSError, HistoryError) as error:
        raise CheckFailed(f"the tiles of {checkpoint.origin} in {folder} are not complete: {error}") from None
    if root != checkpoint.root:
        raise CheckFailed(
            f"the tiles in {folder} give the root {root.hex()}, but {checkpoint.origin} of size {checkpoint.size} has"
            f" {checkpoint.root.hex()}",
            hint="export to an empty folder; routerctl doctor checks the node",
        )


def require_full_tiles(folder: Path, checkpoint: Checkpoint) -> None:
    """Raise CheckFailed unless each full tile has the hash that the level above states, up to the partial tiles.

    The partial ones give the root. Of level 0, tiles may be missing, because they were pruned.
    """
    from federation.errors import HistoryError
    from federation.history.merkle import HASH_SIZE, hash_perfect
    from federation.history.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, TileAddress, read_hashes

    for level in reversed(range(MAX_LEVEL)):
        stated = checkpoint.size >> (level + 1) * TILE_HEIGHT
        for first in range(0, stated, TILE_WIDTH):
            above = TileAddress(level + 1, first // TILE_WIDTH, min(TILE_WIDTH, stated - first))
            due = [TileAddress(level, number) for number in range(first, first + above.width)]
            due = [tile for tile in due if _is_there(folder / tile.path(), TILE_WIDTH * HASH_SIZE)]
            try:
                hashes = read_hashes((folder / above.path()).read_bytes(), above) if due else []
                for tile in due:
                    found = hash_perfect(read_hashes((folder / tile.path()).read_bytes(), tile))
                    if found != hashes[tile.number - first]:
                        raise CheckFailed(
                            f"{folder / tile.path()} has the hash {found.hex()}, but {above.path()} of"
                            f" {checkpoint.origin} states {hashes[tile.number - first].hex()}",
                            hint="delete this file and export again; routerctl doctor checks the node",
                        )
            except (OSError, HistoryError) as error:
                raise CheckFailed(f"the tiles of {checkpoint.origin} in {folder} are not complete: {error}") from None
