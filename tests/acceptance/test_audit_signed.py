"""The campaign in signed histories: a lake is damaged in each of its groups, and one audit finds exactly that."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.report import Report
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from eventd.witnessing.node_keys import load_history_keys
from tests.support.campaign.damages.trees import (
    EVENTS,
    HALF,
    SIGNED,
    SIZE,
    Moment,
    SignedScene,
    edit_manifest,
    put_back,
)
from tests.support.campaign.lake_files import LakeFiles
from tests.support.campaign.page import in_signed_histories
from tests.support.lakes import NOON
from tests.support.local_spark import run_audit
from tests.support.sealed_nodes import SealedNode, open_sealed_node
from tests.support.source import ROOT
from tests.support.stopped_nodes import ship

LATER = NOON + 600 * SECOND
SOUND = "sound"
GROUPS = (SOUND, *(one.name for one in SIGNED))


class SignedLake:
    """The lake of the nodes `a`, with a group for each damage, `b` and `c`, which sign all that they write there."""

    def __init__(self, root: Path, template: str) -> None:
        self.root = root
        self.lake = LakeFiles(root / "lake")
        for node in ("a", "b", "c"):
            (root / node).mkdir()
            load_history_keys(root / node, SYSTEM)
            shutil.copyfile(template.removeprefix("sqlite:///"), self.database(node))
            with closing(sqlite3.connect(self.database(node))) as connection, connection:
                connection.execute("UPDATE log_heads SET epoch = ?, instance = ?", (node * 16, node * 16))

    def database(self, node: str) -> Path:
        """Return the file of a node."""
        return self.root / f"{node}.db"

    async def open(self, node: str) -> SealedNode:
        """Start a node."""
        keys = load_history_keys(self.root / node, SYSTEM)
        return await open_sealed_node(f"sqlite:///{self.database(node)}", keys.log)

    def ship(self, node: str, now: int) -> None:
        """Ship what a node has recorded."""
        ship(f"sqlite:///{self.database(node)}", self.lake.root, now=now, keys=self.root / node)

    def inflict(self, moment: Moment) -> None:
        """Do the damages of a moment."""
        for one in SIGNED:
            if one.moment is moment:
                one.inflict(SignedScene(one.name, self.database("a"), self.lake))

    def audit(self, now: int) -> Report:
        """Audit the lake."""
        request = AuditRequest(lake=str(self.lake.root), out=str(self.root / "out"))
        return run_audit(request, clock=ManualClock(now))


@pytest.fixture
async def signed(migrated_sqlite_url: str, tmp_path: Path) -> SignedLake:
    made = SignedLake(tmp_path, migrated_sqlite_url)
    node = await made.open("a")
    for group in GROUPS:
        await node.declare(group=group)
        ids = [f"{group}-{number}" for number in range(1, EVENTS + 1)]
        await node.grow(group, *ids[:HALF])
        assert await node.seal(group)
        await node.grow(group, ids[HALF])
        await node.grow(group, *ids[HALF + 1 :])
    await node.close()
    made.inflict(Moment.BEFORE_SEALING)
    node = await made.open("a")
    for group in GROUPS:
        if not await node.seal(group):
            await node.grow(group, f"{group}-later")
            assert await node.seal(group)
    await node.close()
    made.inflict(Moment.BEFORE_SHIPPING)
    for name in ("b", "c"):
        node = await made.open(name)
        await node.declare(group="g", node=name)
        await node.grow("g", f"{name}-1", node=name)
        assert await node.seal("g", node=name)
        await node.close()
    for name in ("a", "b", "c"):
        made.ship(name, LATER)
    return made


def wanted(*moments: Moment) -> set[tuple[str, str, int, int]]:
    """Return the findings of the damages of these moments."""
    return {(kind, one.name, *span) for one in SIGNED if one.moment in moments for kind, *span in one.wanted}


async def test_each_damage_of_a_signed_history_is_found_and_nothing_else(signed: SignedLake) -> None:
    shutil.copytree(signed.lake.root, signed.root / "earlier")
    node = await signed.open("c")
    await node.grow("g", "c-2", node="c")
    assert await node.seal("g", node="c")
    await node.close()
    signed.ship("c", LATER + 120 * SECOND)
    before = signed.audit(LATER + 120 * SECOND)
    in_databases = wanted(*(moment for moment in Moment if moment is not Moment.IN_LAKE))
    assert {(one.kind.value, one.group, one.first, one.last) for one in before.findings} == in_databases
    sound = next(one for one in before.trees if one.group == SOUND)
    assert (sound.size, sound.proven) == (SIZE, SIZE)

    signed.inflict(Moment.IN_LAKE)
    edited = [edit_manifest(signed.lake)]
    put_back(signed.lake, signed.root / "earlier")
    report = signed.audit(LATER + 120 * SECOND)
    assert {(one.kind.value, one.group, one.first, one.last) for one in report.findings if one.group} == wanted(*Moment)
    edited += [one.name for book in ("events", "history") for one in signed.lake.segments(book, "a")]
    edited += [str(one.relative_to(signed.lake.root)) for node in ("a", "c") for one in signed.lake.states(node)]
    assert {(one.kind.value, one.ids) for one in report.findings if not one.group} == {
        ("rolled_back", ()),
        *(("lake_rewritten", (name,)) for name in edited),
    }


def test_the_page_lists_what_is_found_in_signed_histories() -> None:
    page = (ROOT / "docs" / "reference" / "audit-damage.md").read_text()
    assert f"\n\n{in_signed_histories()}\n\n" in page
