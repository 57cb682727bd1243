"""When a node may sign in a tree that it found at its start: its database may be an older copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

GATE_SECONDS: Final = 60.0
"""How long after its start a node waits at most for what others hold of its tree, before it signs."""
LAKE: Final = "the lake"
"""Names the lake where a peer would be named; no node can have this name."""


class SigningGate:
    """Whether a node may sign in a tree that it found at its start.

    Its database may be an older copy, which only those can show that hold more of the tree: the peers that have
    cosigned it, and the lake. `known`: how many leaves each peer has held, as the database says. Such a peer is heard
    once it has shown as many. The gate opens as soon as all of them are heard, and one peer or the lake has shown what
    it holds of the tree; if none of them does, when all that are asked have answered. What cannot answer delays
    signing for `GATE_SECONDS`. `with_lake`: the lake is asked.
    """

    def __init__(self, known: Mapping[str, int] | None = None, *, with_lake: bool = False) -> None:
        self.is_open = False
        self._opened: asyncio.Future[None] | None = None
        self._known = dict(known or {})
        self._asked: frozenset[str] | None = None
        self._lake = frozenset((LAKE,) if with_lake else ())
        self._shown: dict[str, int] = {}
        self._is_new = False

    @property
    def outstanding(self) -> list[str]:
        """The names of those that are asked and have not shown what they are known to hold, or not answered."""
        asked = self._lake | (self._asked or frozenset())
        return sorted(name for name in asked if self._shown.get(name, -1) < self._known.get(name, 0))

    def open(self) -> None:
        """Let the node sign, as when its present tree is not continued."""
        self.is_open = True
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def note_new_tree(self) -> None:
        """Note that the tree was opened in this run: no copy can fork it, so any answer is enough.

        Before it is signed, a peer may show an older tree, which the next one must follow.
        """
        self._known, self._is_new = {}, True
        self._consider()

    def heard(self, name: str, size: int) -> None:
        """Note how many leaves of the tree a peer, or the lake, has shown; 0 also if its program knows no histories."""
        self._shown[name] = size
        self._consider()

    def ask(self, peers: Iterable[str]) -> None:
        """Set the peers that are asked."""
        self._asked = frozenset(peers)
        self._consider()

    def _consider(self) -> None:
        if self._asked is None:
            return
        outstanding = self.outstanding
        enough = bool(self._shown) if self._is_new else any(self._shown.values())
        if not outstanding or (enough and not self._known.keys() & set(outstanding)):
            self.open()

    async def wait(self, timer: asyncio.Future[None]) -> None:
        """Wait until the node may sign, or the timer is done."""
        self._opened = asyncio.get_running_loop().create_future()
        if not self.is_open:
            await asyncio.wait({self._opened, timer}, return_when=asyncio.FIRST_COMPLETED)
