"""The findings by kind, with ids, and as embedded files: CSV, cut off if too long, and JSON, omitted if too long."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from eventd.audit.report.figures import NONE
from eventd.audit.report.findings import EventEvidence, Finding, Kind
from eventd.audit.report.pair_status import MEANINGS, VERDICTS, noun
from eventd.audit.report.report import Report
from eventd.text.invisible import spelled_out
from eventd.text.plural import counted

MOST_FINDINGS = 100
"""Maximum number of rows in the table of a kind."""
MOST_IDS_SHOWN = 4_000
"""Approximate maximum number of ids shown on the page, apart from the embedded files."""
MOST_EVIDENCE_SHOWN = 1_000
"""Approximate maximum number of entries of evidence shown on the page."""
MOST_OCTETS = 250_000
"""Approximate maximum length of each embedded file, in bytes."""

_OPENS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def findings(report: Report) -> dict[str, Any]:
    """Return the template's data for the section of findings."""
    kinds = [kind for kind in Kind if any(one.kind is kind for one in report.findings)]
    by_kind = [_kind(kind, report.findings, MOST_IDS_SHOWN // len(kinds)) for kind in kinds]
    files, cut_after = _files(report.findings) if kinds else ([], 0)
    return {
        "state": VERDICTS[report.verdict],
        "kinds": by_kind,
        "files": files,
        "cut_after": cut_after,
        "most_evidence": max(3, MOST_EVIDENCE_SHOWN // max(1, len(report.findings))),
    }


def entry_parts(entry: EventEvidence) -> list[tuple[str, str]]:
    """Return the known parts of an entry of evidence, each with its name."""
    parts = (
        ("at", entry.at),
        ("sent by", entry.sender),
        ("batch", entry.batch),
        ("receipt", entry.receipt_digest),
        ("key", entry.key_id),
        _fingerprints(entry.fingerprints),
    )
    return [(name, text) for name, text in parts if text]


def _fingerprints(both: Sequence[str]) -> tuple[str, str]:
    """Return the name and the text under which an entry shows the fingerprints at the source and at the peer.

    An empty one is not known: the name then says at which end the other one is.
    """
    if len({*both}) < 2:
        return "fingerprint", "".join(both[:1])
    if all(both):
        return "fingerprints", " ≠ ".join(both)
    return f"fingerprint known at the {'source' if both[0] else 'peer'} only", "".join(both)


def _kind(kind: Kind, every: Iterable[Finding], share: int) -> dict[str, Any]:
    """Return the template's data for the table of one kind, which shows about `share` ids."""
    found = [one for one in every if one.kind is kind]
    title, meaning = MEANINGS[kind]
    events = sum(one.events for one in found)
    of = f" in {counted(len(found), 'finding')}" if events != len(found) else ""
    return {
        "kind": kind.value,
        "title": title,
        "meaning": meaning,
        "count": counted(events, noun(kind)) + of,
        "findings": found[:MOST_FINDINGS],
        "most": max(3, share // min(len(found), MOST_FINDINGS)),
        "more": len(found[MOST_FINDINGS:]),
    }


def number_range(one: Finding) -> str:
    """Format the first and last seq (or ledger row) of a finding, inclusive: `48,211 – 48,212`; a dash without them."""
    if not one.last:
        return NONE
    return f"{one.first:,}" if one.first == one.last else f"{one.first:,} – {one.last:,}"


def _files(found: Sequence[Finding]) -> tuple[list[dict[str, str]], int]:
    """Return name and data URL of the CSV and, if not too long, the JSON, and after how many lines the CSV is cut."""
    text, cut_after = _as_csv(found)
    whole = spelled_out(msgspec.json.format(msgspec.json.encode(found), indent=1).decode()).encode()
    files = [("findings.csv", "text/csv", text.encode("utf-8", "backslashreplace"))]
    if len(whole) <= MOST_OCTETS:
        files.append(("findings.json", "application/json", whole))
    return [
        {"name": name, "href": f"data:{media};base64,{b64encode(content).decode()}"} for name, media, content in files
    ], cut_after


def _as_csv(found: Iterable[Finding]) -> tuple[str, int]:
    """Return the findings as CSV, one line per id (or finding without ids), and after how many it is cut (0: not)."""
    out, lines = io.StringIO(), 0
    write = csv.writer(out).writerow
    write(("kind", "group", "source", "peer", "first", "last", "id", "detail"))
    for one in found:
        head = (one.kind, one.group, one.source, one.peer, str(one.first), str(one.last))
        for id in one.ids or ("",):
            if out.tell() >= MOST_OCTETS:
                return out.getvalue(), lines
            write([_harmless(cell) for cell in (*head, id, one.detail)])
            lines += 1
    return out.getvalue(), 0


def _harmless(cell: str) -> str:
    """Escape a cell that a spreadsheet would read as a formula."""
    return f"'{cell}" if cell.startswith(_OPENS_FORMULA) else cell
