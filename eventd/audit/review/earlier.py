"""Reads the report of an earlier audit, with all ids of its findings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from eventd.audit.report.file_names import FINDINGS, REPORT
from eventd.audit.report.findings import MOST_EVIDENCE, MOST_IDS, EventEvidence, Finding, Kind
from eventd.audit.report.report import SCHEMA, Lake
from eventd.errors import Invalid, NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.layout import LARGEST
from eventd.lake.manifest import NESTED
from eventd.lake.storage import Storage, connect

_NOUN = "report"
_HINT = "name the report.json of an audit, or its folder"
_COLUMNS = ("kind", "group", "source", "peer", "first", "last", "id", "detail")


class ReportPlace(NamedTuple):
    """The place of a report: its folder, and whether the folder was named, or report.json alone."""

    folder: Storage
    whole: bool


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a report.json that a later command needs. See `Report`."""

    schema: int
    made_at: str
    verdict: str
    lake: Lake
    findings: tuple[Finding, ...]


class EarlierReport(NamedTuple):
    """A report of an earlier audit: its address to show, the SHA-256 of its report.json, and all findings in full."""

    url: str
    sha256: str
    report: ReadReport
    findings: Sequence[Finding]


def find_report(where: str) -> ReportPlace:
    """Return the place of a report, given the path or address of its folder or of its report.json."""
    if where.rpartition("/")[2] != REPORT:
        return ReportPlace(connect(where, _NOUN), whole=True)
    parent = where.removesuffix(REPORT)
    return ReportPlace(connect(parent.rstrip("/") or ("/" if parent else "."), _NOUN), whole=False)


def read_text(folder: Storage) -> bytes:
    """Return the report.json of a folder. Raises NotFound and LakeUnavailable."""
    try:
        return folder.read(REPORT)
    except NotFound:
        raise NotFound(f"there is no report in {folder.url}: {REPORT} is missing", hint=_HINT) from None


def parse_report(text: bytes, url: str) -> ReadReport:
    """Parse the content of the report.json in the folder `url`. Raises Invalid."""
    try:
        found = msgspec.json.decode(text, type=ReadReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{REPORT} in {url} is not a report: {error}", hint=_HINT) from None
    except RecursionError:
        raise Invalid(f"{REPORT} in {url} is not a report: it {NESTED}", hint=_HINT) from None
    if found.schema != SCHEMA:
        raise Invalid(f"{REPORT} in {url} has schema {found.schema}, and this program knows {SCHEMA}", hint=_HINT)
    if wrong := [one for one in found.findings if not 0 <= one.count <= LARGEST]:
        one = wrong[0]
        raise Invalid(
            f"{REPORT} in {url} has a finding with {one.count:,} events: not a number from 0 to {LARGEST:,}"
            f" ({one.kind.value}, from {one.source or '-'} to {one.peer or '-'})",
            hint=_HINT,
        )
    return found


def read_earlier(where: str) -> EarlierReport:
    """Read a report with all ids of its findings; those that report.json leaves out are in the table beside it.

    Raises NotFound, LakeUnavailable, and Invalid for another file than a report, and if ids are left out and the table
    is missing.
    """
    folder = find_report(where).folder
    text = read_text(folder)
    report = parse_report(text, folder.url)
    digest = hashlib.sha256(text).hexdigest()
    if not any(_is_shortened(one) for one in report.findings):
        return EarlierReport(folder.url, digest, report, report.findings)
    try:
        table = folder.read(FINDINGS)
    except NotFound:
        raise Invalid(
            f"{REPORT} in {folder.url} has not all ids of its findings, and {FINDINGS} is missing",
            hint="name the complete folder of the audit",
        ) from None
    return EarlierReport(folder.url, digest, report, _findings(table, report, folder.url))


def _is_shortened(finding: Finding) -> bool:
    """Return whether report.json may lack ids or evidence of a finding."""
    return len(finding.ids) >= MOST_IDS or len(finding.evidence) >= MOST_EVIDENCE


def _findings(content: bytes, report: ReadReport, url: str) -> list[Finding]:
    """Return the findings in the content of the table `findings`, with the number of rows that a hole lost.

    The table has a row for each id, so this number is that of report.json. Raises Invalid.
    """
    pa = pyarrow()
    counts = {_key(one): one.count for one in report.findings}
    try:
        table = parquet().read_table(pa.BufferReader(content))
        rows = table.select([*_COLUMNS, "fingerprints"]).to_pylist()
        runs = groupby(rows, key=lambda row: tuple(row[name] for name in _COLUMNS if name != "id"))
        found = [_finding(list(run)) for _, run in runs]
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise Invalid(f"{FINDINGS} in {url} is not a table of findings: {error}", hint=_HINT) from None
    return [replace(one, count=count) if (count := counts.get(_key(one), 0)) > len(one.ids) else one for one in found]


def _key(finding: Finding) -> tuple[object, ...]:
    return tuple(getattr(finding, name) for name in _COLUMNS if name != "id")


def _finding(rows: Sequence[Mapping[str, Any]]) -> Finding:
    head = rows[0]
    return Finding(
        Kind(head["kind"]),
        head["group"],
        head["source"],
        head["peer"],
        head["first"],
        head["last"],
        tuple(row["id"] for row in rows if row["id"]),
        head["detail"],
        evidence=tuple(
            EventEvidence(id=row["id"], fingerprints=tuple(row["fingerprints"])) for row in rows if row["fingerprints"]
        ),
    )
