"""The rows of the ledger `history`: their kinds, and hashes as its column `content` has them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from federation.history.forms import read_base64, write_base64
from federation.history.merkle import HASH_SIZE

MOST_HASHES: Final = 256
"""Maximum number of hashes in one row: those of a tile."""


class HistoryKind(StrEnum):
    """What a row of the ledger `history` holds.

    `opening`: the entry of leaf 0, without its first byte. `hashes`: those that a level of the tree has got since the
    last row, or hashes of leaves (level 0) of records that were deleted before they were shipped. `checkpoint`: the
    last one that was signed. `witnessed`: the last one of a tree of another node that this node has cosigned, or one
    that did not fit to it.
    """

    OPENING = "opening"
    HASHES = "hashes"
    CHECKPOINT = "checkpoint"
    WITNESSED = "witnessed"


def write_hashes(hashes: bytes) -> str:
    """Return hashes, one after the other, as the ledger has them."""
    return write_base64(hashes)


def read_hash_row(content: str) -> list[bytes]:
    """Return the hashes of a row. Raises MalformedHistory."""
    data = read_base64(content, "a row of hashes")
    return [data[at : at + HASH_SIZE] for at in range(0, len(data) - len(data) % HASH_SIZE, HASH_SIZE)]
