"""The campaign: nodes, lakes, states, receipts and clocks are damaged by hand, and the audit finds all of it.

Real nodes run for some hours and ship to a lake. Each damage is done to a copy. What is wrong afterwards is computed
with DuckDB from the ledgers before and after, without the code of the audit. The stages of the audit run in this
process; for a lake with damages of each kind also in Spark, which has to find the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eventd.audit.report.report import Report
from tests.support.campaign.damage import Damage
from tests.support.campaign.damages import DAMAGES
from tests.support.campaign.federation import Federation, run_federation
from tests.support.campaign.judging import expected_events
from tests.support.campaign.ledgers import open_ledgers
from tests.support.campaign.page import found, not_found
from tests.support.campaign.stage import audit_lake, set_scene, stage
from tests.support.postgres import PostgresServer
from tests.support.source import ROOT

ON_POSTGRES = ("block-edited-at-peer", "retention-feigned")
"""Damages of the database of `b` that also work on Postgres: to edit a block, and to delete some with a note."""
IN_SPARK = (
    "cursor-advanced",
    "deliveries-gone",
    "receipt-edited-under-keys",
    "payload-edited-at-peer",
    "repair-called-delivery",
    "second-sender",
    "inbound-segment-gone",
    "segment-rewritten-remembered",
    "last-events-dropped",
    "earlier-epoch-invented",
)
"""Damages that lead to findings of all kinds, and can be done to one lake in this order: first that of a database."""


def cases(*names: str) -> list[Any]:
    """Return the damages of these names, or all, as parameters."""
    return [pytest.param(damage, id=damage.name) for damage in DAMAGES if damage.name in names or not names]


def test_in_a_lake_without_damage_nothing_is_found(federation: Federation, tmp_path: Path) -> None:
    report = audit_lake(federation.lake, tmp_path / "out", federation.now, None)
    assert (report.verdict, report.findings, report.troubles) == ("complete", (), ())
    assert report.totals.completeness == 100.0
    with open_ledgers(federation.lake) as ledgers:
        (returned,) = ledgers.column("SELECT count(*) FROM before.deliveries WHERE outcome = 'in_path'")
        assert report.totals.expected == expected_events(ledgers) + returned
        redelivered = ledgers.column("SELECT id FROM before.deliveries WHERE repair ORDER BY id")
        assert ledgers.column("SELECT id FROM before.deliveries WHERE outcome = 'expired'") == ["a-2-expired"]
    assert redelivered == ["a-3-00", "a-3-01"]
    (notice,) = report.notices
    assert (notice.kind, notice.group, notice.source, notice.peer, notice.events) == ("redelivery", "edge", "a", "b", 2)


@pytest.mark.parametrize("damage", cases())
def test_the_audit_finds(damage: Damage, federation: Federation, tmp_path: Path) -> None:
    _, wrong = stage(federation, damage, tmp_path, None)
    assert wrong == []


def test_the_audit_finds_the_same_in_spark(federation: Federation, spark: SparkSession, tmp_path: Path) -> None:
    """Findings of all kinds in one lake, some of them only because an earlier audit has seen the lake."""
    first, *others = (next(one for one in DAMAGES if one.name == name) for name in IN_SPARK)
    with open_ledgers(federation.lake) as ledgers:
        scene = set_scene(federation, first, tmp_path, ledgers)
        first.inflict(scene)
        federation.ship(scene.urls, scene.lake.root)
        before = require_the_same(federation, scene.lake.root, spark)
        for damage in others:
            damage.inflict(scene)
    report = require_the_same(federation, scene.lake.root, spark)
    found = {one.kind.value for one in (*before.findings, *report.findings)}
    assert found == {kind for damage in DAMAGES for kind in damage.kinds}
    assert "was rewritten after an audit had read it" in "".join(one.message for one in report.troubles)


def require_the_same(federation: Federation, lake: Path, spark: SparkSession) -> Report:
    """Audit a lake in Spark and without, once more where it was audited before; return the report of Spark."""
    report, local = (
        audit_lake(lake, lake.with_name(out), federation.now, session, keys=federation.keys)
        for out, session in (("spark", spark), ("local", None))
    )
    assert (report.verdict, report.totals, report.findings) == (local.verdict, local.totals, local.findings)
    assert (report.pairs, report.notices, report.troubles) == (local.pairs, local.notices, local.troubles)
    return report


@pytest.fixture(scope="session")
def mixed_federation(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Federation:
    """The same federation; `b` has its database on Postgres."""
    urls = {"b": postgres_server.create_database()}

    def copy(url: str) -> str:
        return postgres_server.create_database(like=url)

    return asyncio.run(run_federation(tmp_path_factory.mktemp("mixed"), urls, copy))


@pytest.mark.parametrize("damage", cases(*ON_POSTGRES))
def test_the_audit_finds_it_also_on_postgres(damage: Damage, mixed_federation: Federation, tmp_path: Path) -> None:
    _, wrong = stage(mixed_federation, damage, tmp_path, None)
    assert wrong == []


def test_the_page_lists_what_the_campaign_proves() -> None:
    page = (ROOT / "docs" / "reference" / "audit-damage.md").read_text()
    assert f"\n\n{found()}\n\n" in page
    assert page.endswith(f"\n\n{not_found()}\n")


def test_each_damage_has_a_name_of_its_own() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES) >= 30
