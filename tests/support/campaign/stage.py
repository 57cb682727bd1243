"""Sets the scene of one damage: copies, damages, ships, audits."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from eventd.audit.engine.request import AuditRequest
from eventd.audit.receipts.receipt_keys import read_receipt_keys
from eventd.audit.report.report import Report
from eventd.testing import ManualClock
from tests.support.campaign.damage import Damage, Scene
from tests.support.campaign.federation import AUDITOR, Federation
from tests.support.campaign.judging import complaints
from tests.support.campaign.ledgers import Ledgers, open_ledgers
from tests.support.local_spark import run_audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit_lake(lake: Path, out: Path, now: int, spark: SparkSession | None, *, keys: Path | None = None) -> Report:
    """Audit a lake at a time, with the keys in a folder; by the stand-in of Spark without a session."""
    given = read_receipt_keys([str(keys / AUDITOR)] if keys else [])
    return run_audit(AuditRequest(lake=str(lake), out=str(out), keys=given), spark, clock=ManualClock(now))


def stage(federation: Federation, damage: Damage, root: Path, spark: SparkSession | None) -> tuple[Report, list[str]]:
    """Do one damage to a copy of the lake, and return the report of its audit with what is wrong with it."""
    with open_ledgers(federation.lake) as ledgers:
        scene = set_scene(federation, damage, root, ledgers)
        if damage.remembers:
            audit_lake(scene.lake.root, root / "out", federation.now, spark)
        damage.inflict(scene)
        if damage.in_databases:
            federation.ship(scene.urls, scene.lake.root)
        ledgers.read("after", scene.lake.root)
        keys = federation.keys if damage.keys else None
        now = federation.now + damage.audited_after
        report = audit_lake(scene.lake.root, root / "out", now, spark, keys=keys)
        return report, complaints(damage, report, ledgers)


def set_scene(federation: Federation, damage: Damage, root: Path, ledgers: Ledgers) -> Scene:
    """Copy what a damage is done to."""
    root.mkdir(parents=True, exist_ok=True)
    urls: dict[str, str] = {}
    if damage.in_databases:
        shutil.copytree(federation.early, root / "lake")
        urls = federation.copy_databases(root / "databases", federation.unshipped)
    else:
        shutil.copytree(federation.lake, root / "lake")
    return Scene(federation, root, ledgers, random.Random(damage.name), urls)
