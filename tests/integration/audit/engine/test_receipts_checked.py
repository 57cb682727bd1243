"""Receipts of real nodes in the audit: compared with their digests, rows and copies, and verified with keys."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.receipts import receipt_checks
from eventd.audit.receipts.receipt_checks import is_chosen
from eventd.audit.receipts.receipt_keys import read_receipt_keys
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Pair, Report
from eventd.lake.schema import Ledger
from federation.event import micros
from tests.support import known_cells
from tests.support.local_spark import run_audit
from tests.support.receipt_lakes import (
    SECRET,
    Row,
    change_rows,
    copy_of,
    end_ledgers,
    make_lake,
    write_keys,
)
from tests.support.shipped import rows

NO_KEYS = "Receipts not verified: no keys were given."
SHARED = ", 3 of them with a shared secret: the sender could have written these, too"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake of two nodes, and the files of their keys."""
    folder = tmp_path_factory.mktemp("receipts")
    make_lake(folder)
    return folder


def audited(lake: Path, out: Path, *keys: str, **more: Any) -> Report:
    return run_audit(AuditRequest(lake=str(lake), out=str(out), keys=read_receipt_keys(keys), **more))


def first_batch(lake: Path, node: str = "a") -> str:
    return str(rows(lake, Ledger.RECEIPTS, node)[0]["batch_id"])


def of_batch(batch: str, change: Callable[[Row], Row]) -> Callable[[Row], Row]:
    return lambda row: change(row) if row["batch_id"] == batch else row


def test_without_keys_texts_are_compared_and_the_report_says_that_nothing_is_verified(
    made: Path, tmp_path: Path
) -> None:
    report = audited(made / "lake", tmp_path / "out")
    assert (report.verdict, report.findings, report.headline[-1]) == ("complete", (), NO_KEYS)
    shown = {one.algorithm: (one.count, one.checked, one.verified, one.unverifiable) for one in report.receipts}
    assert shown == {"ed25519": (3, 3, 0, 3), "hmac-sha256": (3, 3, 0, 3)}
    assert not any(one.proves_to_others for one in report.receipts)
    check = report.receipt_check
    assert (check.count, check.checked, check.verified, check.invalid) == (6, 6, 0, 0)
    assert (check.copies, check.copies_checked, check.copies_invalid) == (6, 6, 0)
    assert NO_KEYS in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_with_all_keys_every_receipt_is_verified_and_only_public_keys_prove_it_to_others(
    made: Path, tmp_path: Path
) -> None:
    report = audited(made / "lake", tmp_path / "out", write_keys(made, "a-1", "b-1"))
    assert (report.verdict, report.headline[-1]) == ("complete", f"6 of 6 receipts verified{SHARED}.")
    assert (report.receipt_check.verified, report.receipt_check.shared) == (6, 3)
    proofs = {one.algorithm: (one.verified, one.invalid, one.proves_to_others) for one in report.receipts}
    assert proofs == {"ed25519": (3, 0, True), "hmac-sha256": (3, 0, False)}
    assert report.settings.keys == report.receipt_check.keys == ("edge/a-1", "edge/b-1")
    written = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert SECRET.encode() not in written


def test_of_many_bad_receipts_some_are_named_and_all_are_counted(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_checks, "MOST_FAULTS", 1)
    monkeypatch.setattr(known_cells, "known", {})
    lake = copy_of(made / "lake", tmp_path)
    change_rows(lake, Ledger.RECEIPTS, "a", lambda row: row | {"link_epoch": "another"})
    report = audited(lake, tmp_path / "out")
    forged = [(one.ids, one.events, one.detail) for one in report.findings if one.kind is Kind.FORGED]
    assert sorted(forged) == [
        ((), 2, "the answer of the peer contradicts its digest, its row or its signature; more than are listed"),
        ((first_batch(lake),), 1, "the answer of the peer differs from its row: epoch"),
    ]
    assert report.totals.by_kind["forged"] == report.receipt_check.invalid == 3


def test_a_bad_receipt_that_is_counted_only_is_not_counted_again_when_the_peer_has_another(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_checks, "MOST_FAULTS", 1)
    monkeypatch.setattr(known_cells, "known", {})
    lake = copy_of(made / "lake", tmp_path)
    change_rows(lake, Ledger.RECEIPTS, "a", lambda row: row | {"receipt_digest": "0" * 64})
    report = audited(lake, tmp_path / "out")
    assert report.receipt_check.invalid == 3
    assert sum(one.events for one in report.findings) == 3


def test_a_receipt_whose_key_was_not_given_is_counted_as_such(made: Path, tmp_path: Path) -> None:
    report = audited(made / "lake", tmp_path / "out", write_keys(made, "b-1"))
    assert report.headline[-1] == "3 of 6 receipts verified; 3 signed with keys that were not given."
    assert report.receipt_check.unverifiable == 3


def _text(change: Callable[[dict[str, Any]], None], *, digest: bool = False, header: bool = False) -> Any:
    """Return a change of the body of a stored receipt; with `digest` and `header`, these are made to fit."""

    def apply(row: Row) -> Row:
        stored = json.loads(row["receipt"])
        body = json.loads(stored["body"])
        change(body)
        stored["body"] = json.dumps(body, separators=(",", ":"))
        made = hashlib.sha256(stored["body"].encode())
        if digest:
            row["receipt_digest"] = made.hexdigest()
        if header:
            stored["headers"]["content-digest"] = f"sha-256=:{b64encode(made.digest()).decode()}:"
        return row | {"receipt": json.dumps(stored, separators=(",", ":"))}

    return apply


def _key(row: Row) -> Row:
    return row | {"receipt_key_id": "a-1"}


def _batch(body: dict[str, Any]) -> None:
    body["digest"] = f"sha-256=:{b64encode(bytes(32)).decode()}:"


DAMAGES: dict[str, tuple[Callable[[Row], Row], str]] = {
    "text": (_text(_batch), "the answer of the peer is not the text that its digest was made of"),
    "text and digest": (
        _text(_batch, digest=True),
        "the answer of the peer is not the text that its digest was made of",
    ),
    "digest": (
        lambda row: row | {"receipt_digest": "0" * 64},
        "the answer of the peer is not the text that its digest was made of",
    ),
    "epoch": (lambda row: row | {"link_epoch": "another"}, "the answer of the peer differs from its row: epoch"),
    "mark": (
        lambda row: row | {"peer_upto": row["peer_upto"] + 1},
        "the answer of the peer differs from its row: position of the link",
    ),
    "range": (
        lambda row: row | {"upto": row["upto"] + 3},
        "the answer of the peer differs from its row: range",
    ),
    "key": (_key, "the answer of the peer differs from its row: key"),
    "nothing left": (
        lambda row: row | {"receipt": "", "receipt_digest": ""},
        "the answer of the peer has no receipt that can be read",
    ),
    "no JSON": (
        lambda row: row | {"receipt": row["receipt"][:-20]},
        "the answer of the peer has no receipt that can be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_receipt_that_contradicts_its_digest_or_its_row_is_forged(made: Path, tmp_path: Path, name: str) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch, (change, detail) = first_batch(lake), DAMAGES[name]
    change_rows(lake, Ledger.RECEIPTS, "a", of_batch(batch, change))
    report = audited(lake, tmp_path / "out")
    (finding,) = report.findings
    assert _told(finding) == (Kind.FORGED, "edge", "a", "b", (batch,), detail)
    (evidence,) = finding.evidence
    assert (evidence.id, evidence.sender, evidence.batch, bool(evidence.at)) == (batch, "a", batch, True)
    assert (report.receipt_check.invalid, report.verdict) == (1, "incomplete")


def _told(finding: Finding) -> tuple[object, ...]:
    return (finding.kind, finding.group, finding.source, finding.peer, finding.ids, finding.detail)


def test_a_shared_secret_does_not_pass_for_a_public_key(made: Path, tmp_path: Path) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch = first_batch(lake, "b")

    def pretend(row: Row) -> Row:
        stored = json.loads(row["receipt"])
        stored["headers"]["signature-input"] += ', x="ed25519"'
        return row | {"receipt": json.dumps(stored), "receipt_alg": "ed25519"}

    change_rows(lake, Ledger.RECEIPTS, "b", of_batch(batch, pretend))
    report = audited(lake, tmp_path / "out", write_keys(made, "a-1", "b-1"))
    (finding,) = report.findings
    assert (finding.ids, finding.detail) == ((batch,), "the answer of the peer differs from its row: key")


@pytest.mark.parametrize(("sender", "peer", "key"), [("a", "b", "b-1"), ("b", "a", "a-1")])
def test_a_signature_that_does_not_verify_is_found_with_the_key_alone(
    made: Path, tmp_path: Path, sender: str, peer: str, key: str
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch = first_batch(lake, sender)

    def forge(row: Row) -> Row:
        stored = json.loads(row["receipt"])
        stored["headers"]["signature"] = f"eventd=:{b64encode(bytes(64)).decode()}:"
        return row | {"receipt": json.dumps(stored)}

    change_rows(lake, Ledger.RECEIPTS, sender, of_batch(batch, forge))
    assert audited(lake, tmp_path / "without").findings == ()
    report = audited(lake, tmp_path / "out", write_keys(made, "a-1", "b-1"))
    (finding,) = report.findings
    assert (finding.kind, finding.source, finding.peer, finding.ids) == (Kind.FORGED, sender, peer, (batch,))
    assert finding.detail == (
        f"the signature of the answer of the peer does not verify: the answer of {peer} proves nothing:"
        " the signature does not fit"
    )
    assert finding.evidence[0].key_id == key
    shared = SHARED if key == "b-1" else SHARED.replace("3", "2")
    assert report.headline[-1] == f"5 of 6 receipts verified{shared}; 1 invalid."


def test_a_receipt_with_all_digests_made_to_fit_differs_from_the_copy_and_from_its_signature(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch = first_batch(lake)
    change_rows(lake, Ledger.RECEIPTS, "a", of_batch(batch, _text(_batch, digest=True, header=True)))
    (without,) = audited(lake, tmp_path / "without").findings
    assert (without.kind, without.ids) == (Kind.DISAGREEMENT, (batch,))
    (finding,) = audited(lake, tmp_path / "out", write_keys(made, "b-1")).findings
    assert (finding.kind, finding.ids) == (Kind.FORGED, (batch,)), "one fault is one finding"


def test_a_range_that_the_receipt_does_not_contradict_is_compared_with_that_of_the_peer(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch = first_batch(lake)
    change_rows(lake, Ledger.RECEIPTS, "a", of_batch(batch, lambda row: row | {"upto": row["upto"] - 1}))
    (finding,) = audited(lake, tmp_path / "out").findings
    detail = "sender and peer have different receipts of the batch, or different ranges"
    assert _told(finding) == (Kind.DISAGREEMENT, "edge", "a", "b", (batch,), detail)


COPIES: dict[str, tuple[Callable[[Row], Row], str]] = {
    "text": (lambda row: row | {"receipt": row["receipt"] + " "}, "is not the text that its digest was made of"),
    "row": (lambda row: row | {"body_digest": "sha-256=:AA==:"}, "differs from its row: digest of the batch"),
    "no JSON": (lambda row: row | {"receipt": "{"}, "has no receipt that can be read"),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_contradicts_its_digest_or_its_row_is_forged(made: Path, tmp_path: Path, name: str) -> None:
    lake = copy_of(made / "lake", tmp_path)
    batch, (change, detail) = first_batch(lake), COPIES[name]
    change_rows(lake, Ledger.INBOUND, "b", of_batch(batch, change))
    report = audited(lake, tmp_path / "out")
    (finding,) = report.findings
    assert _told(finding) == (Kind.FORGED, "edge", "a", "b", (batch,), f"the peer's copy of its answer {detail}")
    assert (report.receipt_check.copies_invalid, report.receipt_check.invalid) == (1, 0)


def test_results_are_kept_for_the_same_keys_and_made_again_for_others(made: Path, tmp_path: Path) -> None:
    keys = write_keys(made, "a-1", "b-1")
    first = audited(made / "lake", tmp_path / "out", keys)
    again = audited(made / "lake", tmp_path / "out", keys)
    assert (again.work.segments_read, again.receipts) == (0, first.receipts)
    other = audited(made / "lake", tmp_path / "out", write_keys(made, "a-1"))
    receipts = {job["batch_id"] for job in rows(made / "lake", Ledger.RECEIPTS)}
    assert other.work.rows_read == len(receipts), "only the segments with signatures"
    assert other.receipt_check.verified == 3


def test_a_share_is_the_same_in_each_run_and_the_report_says_how_many(made: Path, tmp_path: Path) -> None:
    none = audited(made / "lake", tmp_path / "none", receipts=0.0)
    assert (none.receipt_check.checked, none.receipt_check.copies_checked) == (0, 0)
    assert none.headline[-1] == "Receipts not verified: none was checked."
    keys = write_keys(made, "a-1", "b-1")
    batches = [row["batch_id"] for row in rows(made / "lake", Ledger.RECEIPTS)]
    # The ids of batches are random, and so is the share in which some of them are, and not all.
    chosen = {percent: sum(is_chosen(batch, percent) for batch in batches) for percent in range(100)}
    percent = next(percent for percent, count in chosen.items() if 0 < count < len(batches))
    counts = [audited(made / "lake", tmp_path / f"{n}", keys, receipts=percent).receipt_check for n in range(2)]
    assert counts[0] == counts[1]
    assert counts[0].checked == counts[0].copies_checked == counts[0].verified == chosen[percent]
    assert 0 < counts[0].checked < counts[0].count
    assert counts[0].percent == percent


def _pair(report: Report, source: str, peer: str) -> Pair:
    return next(pair for pair in report.pairs if (pair.source, pair.peer) == (source, peer))


def _remove(lake: Path, pattern: str) -> None:
    found = list(lake.glob(pattern))
    assert found, pattern
    for file in found:
        file.unlink()


def test_receipts_prove_the_deliveries_to_a_peer_without_ledgers_only_if_they_are_verified(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    _remove(lake, "landing/*/*/node=b-*/*")
    _remove(lake, "nodes/b-*/*")
    proofs = {
        keys: _pair(audited(lake, tmp_path / f"out{len(keys)}", *keys), "a", "b").proof
        for keys in ((), (write_keys(made, "a-1"),), (write_keys(made, "a-1"), write_keys(made, "b-1")))
    }
    assert list(proofs.values()) == ["claims", "claims", "receipts"]


def test_receipts_that_a_shared_secret_verifies_are_claims_of_the_sender_who_has_it_too(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    _remove(lake, "landing/*/*/node=a-*/*")
    _remove(lake, "nodes/a-*/*")
    report = audited(lake, tmp_path / "out", write_keys(made, "a-1", "b-1"), without_ledgers=("a",))
    assert (_pair(report, "b", "a").proof, report.receipt_check.shared) == ("claims", 3)
    assert (
        "3 receipts verified with a shared secret prove no delivery" in (tmp_path / "out" / "report.html").read_text()
    )


def test_copies_in_the_lake_alone_confirm_no_receipt(made: Path, tmp_path: Path) -> None:
    """A program that can write to the lake writes both; a state of the peer says that these are its ledgers."""
    lake = copy_of(made / "lake", tmp_path)
    _remove(lake, "nodes/b-*/*")
    assert _pair(audited(lake, tmp_path / "out"), "a", "b").proof == "claims"


def test_a_verified_receipt_proves_a_delivery_whose_proof_is_in_a_damaged_ledger(made: Path, tmp_path: Path) -> None:
    lake = copy_of(made / "lake", tmp_path)
    _remove(lake, "landing/events/*/node=b-*/*.parquet")
    without = _pair(audited(lake, tmp_path / "without"), "a", "b")
    assert (without.delivered, without.unproven) == (0, 12)
    verified = _pair(audited(lake, tmp_path / "out", write_keys(made, "b-1")), "a", "b")
    assert (verified.delivered, verified.unproven) == (12, 0)


def test_deliveries_after_the_end_of_the_peers_ledger_count_as_proven_by_verified_receipts(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    answered = sorted({row["done_at"] for row in rows(lake, Ledger.DELIVERIES, "a")})
    end_ledgers(lake, "b", answered[1])  # two of the three batches are in them
    report = audited(lake, tmp_path / "without")
    assert "After the end of the peer's ledger: 4 deliveries by the sender's claim alone." in report.headline
    without = _pair(report, "a", "b")
    verified = _pair(audited(lake, tmp_path / "out", write_keys(made, "b-1")), "a", "b")
    assert (without.delivered, verified.delivered) == (12, 12)
    assert (without.claims_after, without.receipts_after, without.claimed) == (4, 0, 4)
    assert (verified.claims_after, verified.receipts_after, verified.claimed) == (0, 4, 0)


def test_deliveries_that_the_peers_ledger_shows_are_no_claims_although_it_is_complete_only_until_earlier(
    made: Path, tmp_path: Path
) -> None:
    lake = copy_of(made / "lake", tmp_path)
    (state,) = lake.glob("nodes/b-*/*.json")
    said = json.loads(state.read_text())
    said["complete_until"] = said["as_of"] = min(micros(row["recorded_at"]) for row in rows(lake, Ledger.EVENTS, "b"))
    state.write_text(json.dumps(said))
    report = audited(lake, tmp_path / "out")
    pair = _pair(report, "a", "b")
    assert (pair.delivered, pair.claims_after, pair.receipts_after, report.totals.claimed) == (12, 0, 0, 0)
    assert report.headline[0] == "24 of 24 delivered."
