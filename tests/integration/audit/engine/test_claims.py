"""A report says how many deliveries are known by the sender's claim alone, also if it is complete."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.receipts.receipt_keys import read_receipt_keys
from eventd.audit.report.report import Pair, Report
from eventd.audit.report.summary import summary
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect
from eventd.lake.writer import write_segment, write_state
from eventd.runtime.clock import SECOND
from tests.support.local_spark import run_audit
from tests.support.receipt_lakes import copy_of, make_lake, write_keys
from tests.support.shipped import state as state_of

HOUR = 3600 * SECOND
ALL_CLAIMED = "12 of 12 delivered, all of them by the sender's claim alone."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake of two nodes that sent each other 12 events, and the files of their keys."""
    folder = tmp_path_factory.mktemp("claims")
    make_lake(folder)
    return folder


def audited(lake: Path, out: Path, *keys: str) -> Report:
    """Audit a lake, of which `b` is known to have no ledgers where they were removed."""
    keyring = read_receipt_keys(keys)
    return run_audit(AuditRequest(lake=str(lake), out=str(out), keys=keyring, without_ledgers=("b",)))


def pair_of(report: Report, source: str, peer: str) -> Pair:
    return next(pair for pair in report.pairs if (pair.source, pair.peer) == (source, peer))


def without_ledgers(lake: Path, node: str) -> None:
    """Remove all ledgers of a node and its state."""
    for file in [*lake.glob(f"landing/*/*/node={node}-*/*"), *lake.glob(f"nodes/{node}-*/*")]:
        file.unlink()


def begin_later(lake: Path, node: str, book: Ledger) -> dict[str, Any]:
    """Remove the first row of a ledger, as if retention had removed a segment with it; return the row."""
    storage, state = connect(str(lake)), state_of(lake, node)
    first, *_ = sorted(
        (one for one in survey(storage).segments if (one.manifest.node, one.place.book) == (node, book)),
        key=lambda one: one.place.after,
    )
    table = read_segment(storage, first)
    row = table.slice(0, 1).to_pylist()[0]
    storage.delete([first.place.data, first.place.manifest])
    later = first.place._replace(after=row["number"])
    write_segment(storage, later, table.slice(1), node=node, now=first.manifest.written_at)
    reach = msgspec.structs.replace(state.segments[book], after=row["number"])
    write_state(storage, msgspec.structs.replace(state, segments={**state.segments, book: reach}))
    return dict(row)


def shown(report: Report) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(summary(report))
    return out.getvalue()


def test_a_complete_report_says_that_only_the_sender_claims_the_deliveries_to_a_peer_without_ledgers(
    made: Path, tmp_path: Path
) -> None:
    lake, out = copy_of(made / "lake", tmp_path), tmp_path / "out"
    without_ledgers(lake, "b")
    report = audited(lake, out)
    assert (report.verdict, report.headline[0]) == ("complete", ALL_CLAIMED)
    assert (report.totals.claimed, pair_of(report, "a", "b").claimed) == (12, 12)
    assert shown(report).splitlines()[0] == f"✓ {ALL_CLAIMED}"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert ALL_CLAIMED.replace("'", "&#39;") in page
    assert "<b>12</b> delivered by the sender&#39;s claim alone" in page
    assert "12 deliveries of this report are in the ledger of the sender alone, which counts, too" in page
    assert json.loads((out / "report.json").read_text())["totals"]["claimed"] == 12


def test_a_verified_receipt_is_not_a_claim(made: Path, tmp_path: Path) -> None:
    lake = copy_of(made / "lake", tmp_path)
    without_ledgers(lake, "b")
    report = audited(lake, tmp_path / "out", write_keys(made, "a-1", "b-1"))
    assert (report.verdict, report.totals.claimed) == ("complete", 0)
    assert report.headline[0] == "12 of 12 delivered."
    assert "by the sender&#39;s claim alone" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_deliveries_whose_receipts_retention_has_removed_are_the_only_claims_of_their_link(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    without_ledgers(lake, "b")
    removed = begin_later(lake, "a", Ledger.RECEIPTS)
    report = audited(lake, tmp_path / "out", write_keys(made, "a-1", "b-1"))
    assert 0 < removed["accepted"] < 12
    assert (report.verdict, pair_of(report, "a", "b").proof) == ("complete", "receipts")
    assert (report.totals.claimed, pair_of(report, "a", "b").claimed) == (removed["accepted"], removed["accepted"])


def test_deliveries_from_before_the_beginning_of_the_peers_ledger_are_claims(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    generate(GeneratorSettings(nodes=3, events=600, span=48 * HOUR), str(folder))
    lake = connect(str(folder))
    found = survey(lake)
    first, *_ = sorted(
        (one for one in found.segments if (one.place.book, one.manifest.node) == (Ledger.EVENTS, "site-03")),
        key=lambda one: one.place.after,
    )
    received = read_segment(lake, first, ["own"])["own"].to_pylist().count(False)
    for file in folder.rglob(f"{first.place.name}*"):
        file.unlink()
    (state,) = (one for one in found.nodes if one.node == "site-03")
    reach = msgspec.structs.replace(state.segments[Ledger.EVENTS], after=first.place.upto)
    write_state(lake, msgspec.structs.replace(state, segments={**state.segments, Ledger.EVENTS: reach}))
    report = audited(folder, tmp_path / "out")
    claimed = {(pair.source, pair.peer): pair.claimed for pair in report.pairs if pair.claimed}
    assert {peer for _, peer in claimed} == {"site-03"}
    assert sum(claimed.values()) == report.totals.claimed == received > 0
    assert all(pair.claims_after == 0 for pair in report.pairs)
