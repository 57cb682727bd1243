"""The lake of nodes that sign all they write: `a`, with a group for each damage of signed histories, `b` and `c`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.report import Report
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from eventd.witnessing.node_keys import load_history_keys
from tests.support.campaign.damages.trees import EVENTS, HALF, SIGNED, Moment, SignedScene, edit_manifest, put_back
from tests.support.campaign.lake_files import LakeFiles
from tests.support.lakes import NOON
from tests.support.local_spark import run_audit
from tests.support.sealed_nodes import SealedNode, open_sealed_node
from tests.support.stopped_nodes import ship

SOUND = "sound"
"""The group without damage."""
_SHIPPED = NOON + 600 * SECOND
_AUDITED = _SHIPPED + 120 * SECOND
Fact = tuple[str, ...]
"""The kind of a finding, its group, its first and last leaf or seq; without a group the kind and its ids."""


class SignedLake:
    """The three nodes and their lake, in a folder; `template` is a database without events."""

    def __init__(self, root: Path, template: Path) -> None:
        self.root = root
        self.lake = LakeFiles(root / "lake")
        for node in ("a", "b", "c"):
            (root / node).mkdir()
            load_history_keys(root / node, SYSTEM)
            shutil.copyfile(template, self._database(node))
            with closing(sqlite3.connect(self._database(node))) as connection, connection:
                connection.execute("UPDATE log_heads SET epoch = ?, instance = ?", (node * 16, node * 16))

    async def grow(self) -> None:
        """Let the nodes record and seal events, and ship them; do the damages of their databases meanwhile."""
        await self._grow_groups()
        for name in ("b", "c"):
            await self._emit(name, f"{name}-1")
        for name in ("a", "b", "c"):
            self._ship(name, _SHIPPED)
        shutil.copytree(self.lake.root, self.root / "earlier")
        await self._emit("c", "c-2")
        self._ship("c", _AUDITED)

    def damage(self) -> list[str]:
        """Do the damages of the lake; return the names of the segments and states that were edited."""
        self._inflict(Moment.IN_LAKE)
        edited = [edit_manifest(self.lake)]
        put_back(self.lake, self.root / "earlier")
        edited += [one.name for book in ("events", "history") for one in self.lake.segments(book, "a")]
        edited += [str(one.relative_to(self.lake.root)) for node in ("a", "c") for one in self.lake.states(node)]
        return edited

    def audit(self) -> Report:
        """Audit the lake."""
        request = AuditRequest(lake=str(self.lake.root), out=str(self.root / "out"))
        return run_audit(request, clock=ManualClock(_AUDITED))

    def _database(self, node: str) -> Path:
        return self.root / f"{node}.db"

    def _inflict(self, moment: Moment) -> None:
        for one in SIGNED:
            if one.moment is moment:
                one.inflict(SignedScene(one.name, self._database("a"), self.lake))

    async def _open(self, node: str) -> SealedNode:
        keys = load_history_keys(self.root / node, SYSTEM)
        return await open_sealed_node(f"sqlite:///{self._database(node)}", keys.log)

    def _ship(self, node: str, now: int) -> None:
        ship(f"sqlite:///{self._database(node)}", self.lake.root, now=now, keys=self.root / node)

    async def _grow_groups(self) -> None:
        groups = (SOUND, *(one.name for one in SIGNED))
        node = await self._open("a")
        for group in groups:
            await node.declare(group=group)
            ids = [f"{group}-{number}" for number in range(1, EVENTS + 1)]
            await node.grow(group, *ids[:HALF])
            assert await node.seal(group)
            await node.grow(group, ids[HALF])
            await node.grow(group, *ids[HALF + 1 :])
        await node.close()
        self._inflict(Moment.BEFORE_SEALING)
        node = await self._open("a")
        for group in groups:
            if not await node.seal(group):  # the tree has ended, and another one begins
                await node.grow(group, f"{group}-later")
                assert await node.seal(group)
        await node.close()
        self._inflict(Moment.BEFORE_SHIPPING)

    async def _emit(self, name: str, id: str) -> None:
        node = await self._open(name)
        await node.declare(group="g", node=name)
        await node.grow("g", id, node=name)
        assert await node.seal("g", node=name)
        await node.close()


def wanted(*moments: Moment) -> set[Fact]:
    """Return the findings in the groups of the damages of these moments."""
    return {
        (kind, one.name, str(first), str(last))
        for one in SIGNED
        if one.moment in moments
        for kind, first, last in one.wanted
    }


def wanted_of_files(edited: Iterable[str]) -> set[Fact]:
    """Return the findings of files of which these were edited, and one node's were put back."""
    return {("rolled_back",), *(("lake_rewritten", name) for name in edited)}


def facts(report: Report) -> set[Fact]:
    """Return the findings of a report."""
    return {
        (one.kind.value, one.group, str(one.first), str(one.last)) if one.group else (one.kind.value, *one.ids)
        for one in report.findings
    }


async def complaints_of_signed(root: Path, template: Path) -> list[str]:
    """Do all damages of signed histories to a lake in a folder, and return what its audits are wrong about."""
    made = SignedLake(root, template)
    await made.grow()
    in_databases = wanted(*(moment for moment in Moment if moment is not Moment.IN_LAKE))
    wrong = [f"before the lake was edited: {fact}" for fact in sorted(facts(made.audit()) ^ in_databases)]
    edited = made.damage()
    return wrong + [str(fact) for fact in sorted(facts(made.audit()) ^ (wanted(*Moment) | wanted_of_files(edited)))]
