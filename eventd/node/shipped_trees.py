"""What the lake holds of this node's trees, for the histories of its groups: known when the shipping process has read
it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eventd.witnessing.own_files import OwnFiles


class ShippedTrees:
    """The last checkpoints that this node shipped to its lake.

    `awaited`: whether this process ships to a lake, so that a history may wait for what the lake holds. `files`: the
    trees of the files that it has written there.
    """

    def __init__(self, *, awaited: bool) -> None:
        self.awaited = awaited
        self.files = OwnFiles()
        self._read = asyncio.Event()
        self._notes: tuple[str, ...] = ()

    def note_shipped(self, notes: Sequence[str]) -> None:
        """Note the checkpoints that the lake has. What it had when the node started counts."""
        if not self._read.is_set():
            self._notes = tuple(notes)
            self._read.set()

    async def read(self, group: str, node: str) -> list[str]:
        """Return the checkpoints of a group's trees of this node, once the lake was read."""
        await self._read.wait()
        return [note for note in self._notes if note.startswith(f"eventd/{group}/{node}/")]
