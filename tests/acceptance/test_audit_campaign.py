"""The campaign: nodes, lakes, states, receipts and clocks are damaged by hand, and the audit finds all of it.

Real nodes run for some hours and ship to a lake. Each damage is done to a copy. What is wrong afterwards is computed
with DuckDB from the ledgers before and after, without the code of the audit. The stages of the audit run in this
process; for one damage of each kind also in Spark, which has to find the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from eventd.audit.report.report import Limitation, Report
from tests.support.campaign.damage import Damage
from tests.support.campaign.damages import DAMAGES, one_of_each_kind
from tests.support.campaign.federation import Federation, run_federation
from tests.support.campaign.judging import expected_events
from tests.support.campaign.ledgers import open_ledgers
from tests.support.campaign.page import found, not_found
from tests.support.campaign.stage import audit_lake, stage
from tests.support.postgres import PostgresServer
from tests.support.source import ROOT

ON_POSTGRES = ("blocks-deleted", "block-invented", "block-edited-at-peer", "inbound-deleted", "retention-feigned")
"""Damages of the database of `b`, which also work on Postgres."""


def cases(*names: str) -> list[Any]:
    """Return the damages of these names, or all, as parameters."""
    return [pytest.param(damage, id=damage.name) for damage in DAMAGES if damage.name in names or not names]


def test_in_a_lake_without_damage_nothing_is_found(federation: Federation, spark: SparkSession, tmp_path: Path) -> None:
    report = audit_lake(federation.lake, tmp_path / "out", federation.now, spark)
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


@pytest.mark.parametrize("damage", cases(*[damage.name for damage in one_of_each_kind()]))
def test_the_audit_finds_the_same_in_spark(
    damage: Damage, federation: Federation, spark: SparkSession, tmp_path: Path
) -> None:
    report, wrong = stage(federation, damage, tmp_path / "spark", spark)
    local, _ = stage(federation, damage, tmp_path / "local", None)
    assert wrong == []
    assert (report.verdict, report.totals, report.findings) == (local.verdict, local.totals, local.findings)
    assert (report.pairs, report.notices) == (local.pairs, local.notices)
    assert _troubles(report, tmp_path / "spark") == _troubles(local, tmp_path / "local")


def _troubles(report: Report, folder: Path) -> list[Limitation]:
    """Return the troubles of a report; commands in them name the lake, which lies in `folder`, as `LAKES`."""
    return [replace(one, hint=one.hint.replace(str(folder), "LAKES")) for one in report.troubles]


@pytest.fixture(scope="session")
def mixed_federation(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Federation:
    """The same federation; `b` has its database on Postgres."""
    urls = {"b": postgres_server.create_database()}
    return asyncio.run(run_federation(tmp_path_factory.mktemp("mixed"), urls, postgres_server.copy_database))


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
