"""Retention that removes rows before they are shipped leads to no finding, whenever the lake is audited.

A real federation: before the last round of shipping, retention deletes events or rows of one of its nodes. The lake is
audited after each step of the shipping process, with small segments, and a state written at each step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from eventd.egress.lake import shipper as shipping
from eventd.egress.lake.protocol import RoundEnd, Terms
from eventd.egress.lake.shipper import Shipper
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from tests.support.campaign.federation import NODES, Federation
from tests.support.campaign.stage import audit_lake
from tests.support.stopped_nodes import heed

pytestmark = pytest.mark.timeout(300)

MOST_STEPS = 200


def evict_events(conn: Connection, now: int, *, keep: int) -> None:
    """Evict the events of each group but for the last ones, also those that no peer has yet."""
    for (topic,) in fetch(conn, "SELECT id FROM topics WHERE name LIKE 'group:%'"):
        while evict(conn, topic, EvictionLimits(max_records=keep, keep_undelivered=False), now=now).more:
            pass


def delete_rows(conn: Connection, now: int, *, batches: int = 1 << 60, receipts: int = 1 << 60) -> None:
    """Delete the rows of batches that the node has sent or received."""
    limits = RowRetention(ids=1 << 60, batches=batches, dead_letters=1 << 60, receipts=receipts)
    delete_old_rows(conn, limits, now=now)


def remove_all(conn: Connection, now: int) -> None:
    evict_events(conn, now, keep=0)
    delete_rows(conn, now, batches=0, receipts=0)


REMOVALS: dict[str, Callable[[Connection, int], None]] = {
    "some-events": partial(evict_events, keep=9),
    "batches": partial(delete_rows, batches=0),
    "inbound": partial(delete_rows, receipts=0),
    "everything": remove_all,
}


@pytest.mark.parametrize(("removal", "node"), [*zip(REMOVALS, ("a", "a", "b", "b"), strict=True)])
def test_rows_that_retention_removed_before_they_were_shipped_lead_to_no_finding(
    federation: Federation, tmp_path: Path, node: str, removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "STATE_SECONDS", 0)
    lake, now = tmp_path / "lake", federation.now
    shutil.copytree(federation.early, lake)
    urls = federation.copy_databases(tmp_path / "databases", federation.unshipped)
    federation.ship({other: urls[other] for other in NODES if other != node}, lake)
    terms = Terms(
        database=urls[node], lake=str(lake), rows=100_000, payloads=True, compact_after=0, retention=0, nice=0
    )
    with closing(Database(urls[node])) as database:
        database.write_now(REMOVALS[removal], now)
        shipper = Shipper(terms, database)
        rounds = 0
        for step in range(MOST_STEPS):
            answer = shipper.step(now + step)
            heed(answer, database, now + step)
            report = audit_lake(lake, tmp_path / "out", now + step, None)
            assert report.findings == (), (step, answer)
            rounds += isinstance(answer, RoundEnd)
            if rounds == 2:
                break
    assert rounds == 2
    assert any(one.kind == "declared" for one in report.gaps)
