"""Seals the history of one group while the node serves: a checkpoint a second, where records came in.

Nothing is hashed where records arrive. A sealer that lags takes a twentieth of a core, so that it slows down neither
publishers nor links, until it lags so far that the promise of the history is at stake, or retention waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from eventd.groups.retention import limits_of
from eventd.log.history.open_tree import TreeOwner, close_tree, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.log.history.trees import Tree, find_open_tree, find_unvouched
from eventd.log.retention.waiting import is_sealing_awaited
from eventd.runtime.clock import SECOND, cpu_seconds
from eventd.store.engine.database import Connection
from eventd.witnessing.group_witness import GroupWitness
from eventd.witnessing.signing_gate import GATE_SECONDS
from federation.history.entries import read_opening_entry

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("eventd.history")

SEAL_SECONDS: Final = 0.9
"""Seconds from a commit to its seal, which covers all commits in between."""
IDLE_SECONDS: Final = 60.0
"""Seconds after which a sealer without new records looks at its keys and its tree again."""
REST: Final = 19
"""The pause of a sealer that lags, as a multiple of the processor time that it took: a twentieth of a core.

Not of the time that passed: on a busy machine, a sealer that waits for the processor would rest for that, too.
"""
MOST_LAG: Final = 60 * SECOND
MOST_BEHIND: Final = 1_000_000
"""From this lag (microseconds), or from so many leaves on, a sealer takes the time that it needs. It does so at any lag
while retention waits for it."""


class SealMetrics(Protocol):
    """Interface of the metrics of a history."""

    def history(self, group: str, *, size: int, lag: float) -> None: ...

    def forget_history(self, group: str) -> None: ...


class Sealer:
    """Keeps the history of one group as it is declared; made anew when that changes.

    `grown` is called after each checkpoint. `cpu` returns the processor seconds of the calling thread.
    """

    def __init__(
        self,
        witness: GroupWitness,
        metrics: SealMetrics,
        grown: Callable[[], None],
        cpu: Callable[[], float] = cpu_seconds,
    ) -> None:
        self._witness = witness
        self._log = witness.log
        self._topic_id = witness.topic_id
        self._metrics = metrics
        self._grown = grown
        self._cpu = cpu
        self.is_running = False
        """False also while `run` has failed, as with an unusable file of keys, and is to be called again."""
        self._is_finishing = False
        self._timer: asyncio.Future[None] | None = None  # of the present wait

    def finish(self) -> None:
        """Let `run` return as soon as what is stored now is sealed: the node stops."""
        self._is_finishing = True
        if self._timer is not None and not self._timer.done():
            self._timer.set_result(None)

    async def open_due(self) -> None:
        """Open a tree if the group is to have another one, so that each record from now on gets a leaf.

        Raises `SettingsError` if the file of the keys cannot be used.
        """
        if not self._witness.config().keeps_history:
            return
        tree = await self._open((await self._witness.keys()).owner)
        if tree.size and not self._witness.gate.is_open:
            self._log.unsettled_trees.add(tree.id)

    async def run(self) -> None:
        """Seal until cancelled or `finish`; without a history, end the tree that the group has. Remove its gauges."""
        self.is_running = True
        try:
            await self._run()
        finally:
            self.is_running = False
        self._metrics.forget_history(self._witness.config().name)

    async def _run(self) -> None:
        log, database, kept = self._log, self._log.database, self._witness.config().keeps_history
        tree = await database.read(find_open_tree, self._topic_id)
        if not kept and (tree is None or await database.write(close_tree, self._topic_id)):
            return
        owner = (await self._witness.keys()).owner  # also if nothing is to be sealed: their file may be unusable
        if tree is not None and owner.may_continue(tree, log.epoch):
            try:
                await self._await_others(tree)
            finally:
                log.unsettled_trees.discard(tree.id)
            if not self._witness.gate.is_open:  # the node stops: it does not know whether its database is an older copy
                return
        with log.watch((self._topic_id,), own=True) as watch:
            while True:
                turn = watch.turn
                owner = (await self._witness.keys()).owner  # after a rotation, another one
                rest = await self._seal(owner)
                if not kept and rest is None and await database.write(close_tree, self._topic_id):
                    return
                if rest is None and self._is_finishing:
                    return
                if rest is None:
                    await self._wait(watch.after(turn))
                with self._timed_wait(SEAL_SECONDS if rest is None else rest) as timer:
                    await asyncio.wait({timer})

    async def _await_others(self, tree: Tree) -> None:
        """Wait until others have said what they hold of a tree, for a while."""
        gate, about = self._witness.gate, {"group": self._witness.config().name, "origin": tree.origin}
        if gate.is_open:
            return
        logger.info("history waits", extra=about)
        with self._timed_wait(GATE_SECONDS) as timer:
            await gate.wait(timer)
        if not gate.is_open and not self._is_finishing:
            logger.warning("history not compared", extra=about | {"outstanding": gate.outstanding})
            gate.open()

    async def _wait(self, appended: asyncio.Future[None]) -> None:
        """Wait for new records, up to a minute: another process may have rotated the key."""
        try:
            with self._timed_wait(IDLE_SECONDS) as timer:
                await asyncio.wait({appended, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            appended.cancel()  # else an idle watch would keep one for each minute

    @contextmanager
    def _timed_wait(self, seconds: float) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done after so many seconds, or when the node stops."""
        timer = self._timer = self._log.clock.timer(0.0 if self._is_finishing else seconds)
        try:
            yield timer
        finally:
            timer.cancel()

    async def _seal(self, owner: TreeOwner) -> float | None:
        """Make one checkpoint, if there is something to seal; open a tree where that is due.

        Returns the pause in seconds before the next one; None if nothing is left to seal.
        """
        log, group = self._log, owner.group
        size = (await self._open(owner)).size
        hashed, hashing = await log.database.read(self._timed, hash_new, self._topic_id)
        if hashed is None:
            self._metrics.history(group, size=size, lag=0)
            return None
        now = log.clock.now()
        lag = 0 if hashed.since is None else max(0, now - hashed.since)
        stored, storing = await log.database.write(self._timed, store_checkpoint, hashed, owner, now)
        if stored is None:  # the tree was sealed by another process, or has ended: see at once
            return SEAL_SECONDS
        self._metrics.history(group, size=stored.size, lag=lag / SECOND)
        self._grown()
        if not hashed.behind:
            return None
        if lag > MOST_LAG or hashed.behind > MOST_BEHIND or await self._is_awaited(now):
            return 0.0
        return REST * (hashing + storing)

    async def _is_awaited(self, now: int) -> bool:
        """Return whether events over the limits of retention are only kept until they are sealed."""
        keep = self._witness.config().retention
        if not keep.is_bounded:
            return False
        return await self._log.database.read(is_sealing_awaited, self._topic_id, limits_of(keep), now)

    def _timed(
        self, conn: Connection, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T, float]:
        """Run `fn` in the thread of the database; return its result and the processor seconds that it took."""
        begun = self._cpu()
        return fn(conn, *args, **kwargs), self._cpu() - begun

    async def _open(self, owner: TreeOwner) -> Tree:
        """Return the group's tree, after opening one if there is none that may be continued."""
        log, group = self._log, owner.group
        tree = await log.database.read(find_open_tree, self._topic_id)
        if tree is not None and owner.may_continue(tree, log.epoch):
            return tree
        if tree is not None and tree.trouble:
            logger.error("history damaged", extra={"group": group, "origin": tree.origin, "error": tree.trouble})
        tree = await log.database.write(open_tree, self._topic_id, owner, log.clock.now())
        self._witness.gate.note_new_tree()
        reason = read_opening_entry(tree.opening).opening.reason.value
        about = {"group": group, "origin": tree.origin}
        logger.info("tree opened", extra=about | {"reason": reason})
        if before := await log.database.read(find_unvouched, tree):
            detail = f"the key of {before} has not signed the change: history.key was lost or replaced"
            hint = (
                "if the present history.key is the wrong file, put the right one back; if it is the right one,"
                " operators of peers that do not know its key must confirm it: see doctor"
            )
            logger.warning("history key replaced", extra=about | {"detail": detail, "hint": hint})
        return tree
