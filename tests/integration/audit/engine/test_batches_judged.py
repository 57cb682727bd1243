"""Batches and receipts of real nodes whose ledgers contradict each other, or only seem to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.receipts.receipt_keys import read_receipt_keys
from eventd.audit.report.findings import NO_BATCH, SHARED_KEY, UNKEPT_BATCH, Kind
from eventd.audit.report.report import Report
from eventd.audit.segments.cells import HOUR
from eventd.lake.schema import Ledger
from federation.event import micros
from tests.support.local_spark import run_audit
from tests.support.receipt_lakes import Row, change_rows, copy_of, make_lake, write_keys
from tests.support.shipped import rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake of two nodes, and the files of their keys."""
    folder = tmp_path_factory.mktemp("batches")
    make_lake(folder)
    return folder


def audited(lake: Path, out: Path, *keys: str, **more: Any) -> Report:
    return run_audit(AuditRequest(lake=str(lake), out=str(out), keys=read_receipt_keys(keys), **more))


def _moved(shift: timedelta, *names: str) -> Callable[[Row], Row]:
    return lambda row: row | {name: row[name] + shift for name in names}


@pytest.mark.parametrize(("hours", "bound"), [(1, "since"), (-1, "until")])
def test_batches_that_the_peer_recorded_beyond_the_bound_of_an_audit_are_not_forged(
    made: Path, tmp_path: Path, hours: int, bound: str
) -> None:
    """The clock of `a` is wrong by an hour, so the two times of each batch are on both sides of the bound."""
    lake, shift = copy_of(made / "lake", tmp_path), timedelta(hours=hours)
    change_rows(lake, Ledger.RECEIPTS, "a", _moved(shift, "sent_at", "acked_at"))
    change_rows(lake, Ledger.DELIVERIES, "a", _moved(shift, "attempt_at", "done_at"))
    acked = [micros(row["acked_at"]) // HOUR for row in rows(lake, Ledger.RECEIPTS, "a")]
    recorded = [micros(row["recorded_at"]) // HOUR for row in rows(lake, Ledger.INBOUND, "b")]
    at = min(acked) if hours > 0 else max(acked) + 1
    assert min(recorded) < at if hours > 0 else max(recorded) >= at
    report = audited(lake, tmp_path / "out", **{bound: at * HOUR})
    assert report.findings == ()
    batch = rows(lake, Ledger.RECEIPTS, "a")[1]["batch_id"]
    change_rows(lake, Ledger.INBOUND, "b", lambda row: None if row["batch_id"] == batch else row)
    found = audited(lake, tmp_path / "other", **{bound: at * HOUR}).findings
    assert [(one.kind, one.source, one.peer, one.ids) for one in found] == [(Kind.ERASED, "a", "b", (batch,))]


@pytest.mark.parametrize(
    ("node", "peer", "keys", "expected"),
    [
        ("b", "a", (), (Kind.FORGED, NO_BATCH)),
        ("b", "a", ("a-1",), (Kind.DISAGREEMENT, SHARED_KEY)),
        ("a", "b", (), (Kind.FORGED, NO_BATCH)),
        ("a", "b", ("b-1",), (Kind.ERASED, UNKEPT_BATCH)),
    ],
)
def test_a_batch_that_brought_nothing_new_and_is_gone_at_the_peer_is_judged_by_its_signature(
    made: Path, tmp_path: Path, node: str, peer: str, keys: Sequence[str], expected: tuple[Kind, str]
) -> None:
    """`a` signs with HMAC, `b` with Ed25519. No event at the peer has the time of the batch, as if it had had them."""
    lake = copy_of(made / "lake", tmp_path)
    batch = rows(lake, Ledger.RECEIPTS, node)[1]
    at = batch["peer_recorded_at"]
    change_rows(lake, Ledger.INBOUND, peer, lambda row: None if row["batch_id"] == batch["batch_id"] else row)
    later = timedelta(microseconds=1)
    change_rows(
        lake,
        Ledger.EVENTS,
        peer,
        lambda row: row | {"recorded_at": at + later} if row["recorded_at"] == at and not row["own"] else row,
    )
    report = audited(lake, tmp_path / "out", *([write_keys(made, *keys)] if keys else []))
    found = [(one.kind, one.detail) for one in report.findings if batch["batch_id"] in one.ids]
    assert found == [expected]
