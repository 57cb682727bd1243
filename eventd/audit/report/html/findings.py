"""The findings, kind by kind, with ids; and the whole list as files inside the page."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from eventd.audit.report.figures import NONE, counted
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.pair_status import MEANINGS, VERDICTS, noun
from eventd.audit.report.report import Report
from eventd.text.invisible import spelled_out

MOST_FINDINGS = 100
"""Rows a kind's table has."""
MOST_IDS_SHOWN = 4_000
"""Ids the page lists in all, beside those in its files."""
MOST_OCTETS = 250_000
"""Length of each of the two files inside the page."""

_OPENS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def findings(report: Report) -> dict[str, Any]:
    """The section of the findings."""
    kinds = [kind for kind in Kind if any(one.kind is kind for one in report.findings)]
    by_kind = [_kind(kind, report.findings, MOST_IDS_SHOWN // len(kinds)) for kind in kinds]
    files, left_out = _files(report.findings) if kinds else ([], 0)
    return {"state": VERDICTS[report.verdict], "kinds": by_kind, "files": files, "left_out": left_out}


def _kind(kind: Kind, every: Iterable[Finding], share: int) -> dict[str, Any]:
    """One kind; `share` is how many ids its table may list."""
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
    """`48,211 – 48,212`: the numbers of a finding, both ends included."""
    if not one.last:
        return NONE
    return f"{one.first:,}" if one.first == one.last else f"{one.first:,} – {one.last:,}"


def _files(found: Sequence[Finding]) -> tuple[list[dict[str, str]], int]:
    """Links that save what is inside the page, and how many ids the CSV had no room for. A longer JSON is left out."""
    text, left_out = _as_csv(found)
    whole = spelled_out(msgspec.json.format(msgspec.json.encode(found), indent=1).decode()).encode()
    files = [("findings.csv", "text/csv", text.encode("utf-8", "backslashreplace"))]
    if len(whole) <= MOST_OCTETS:
        files.append(("findings.json", "application/json", whole))
    return [
        {"name": name, "href": f"data:{media};base64,{b64encode(content).decode()}"} for name, media, content in files
    ], left_out


def _as_csv(found: Iterable[Finding]) -> tuple[str, int]:
    """One line an id, and how many ids found no room."""
    out, left_out = io.StringIO(), 0
    write = csv.writer(out).writerow
    write(("kind", "group", "source", "peer", "first", "last", "id", "detail"))
    for one in found:
        ids, written = one.ids or ("",), 0
        head = (one.kind, one.group, one.source, one.peer, str(one.first), str(one.last))
        for id in ids:
            if out.tell() >= MOST_OCTETS:
                break
            write([_harmless(cell) for cell in (*head, id, one.detail)])
            written += 1
        left_out += max(one.events, len(ids)) - written
    return out.getvalue(), left_out


def _harmless(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_OPENS_FORMULA) else cell
