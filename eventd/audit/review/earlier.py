"""Reads the report of an earlier audit, with all ids of its findings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventd.audit.report.file_names import FINDINGS, REPORT
from eventd.audit.report.findings import MOST_EVIDENCE, MOST_IDS, EventEvidence, Finding, Kind
from eventd.audit.report.report import SCHEMA, Lake
from eventd.errors import Invalid, NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.file_sizes import MOST_TEXT
from eventd.lake.layout import LARGEST
from eventd.lake.manifest import NESTED
from eventd.lake.page_sizes import most_bytes, over, with_dictionaries, word_bytes
from eventd.lake.storage import ConnectedStorage, connect

if TYPE_CHECKING:
    import pyarrow as pa

_NOUN = "report"
_HINT = "name the report.json of an audit, or its folder"
MOST_TABLE: Final = 2 << 30
"""Bytes of the largest file of a table that is read."""
_COLUMNS = ("kind", "group", "source", "peer", "first", "last", "id", "detail")
_TEXTS = ("kind", "group", "source", "peer", "id", "detail")
_LISTS = "fingerprints"
_ROWS_AT_ONCE = 10_000


class ReportPlace(NamedTuple):
    """The place of a report: its folder, and whether the folder was named, or report.json alone."""

    folder: ConnectedStorage
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


def read_text(folder: ConnectedStorage) -> bytes:
    """Return the report.json of a folder. Raises NotFound and LakeUnavailable, which includes TooLargeFile."""
    try:
        return folder.read_within(REPORT, MOST_TEXT)
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
        table = folder.read_within(FINDINGS, MOST_TABLE)
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
    counts = {_key(one): one.count for one in report.findings}
    most = sum(one.events for one in report.findings)
    try:
        table = _table(content, most)
        rows = (row for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE) for row in batch.to_pylist())
        runs = groupby(rows, key=lambda row: tuple(row[name] for name in _COLUMNS if name != "id"))
        found = [_finding(list(run)) for _, run in runs]
    except (pyarrow().ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise Invalid(f"{FINDINGS} in {url} is not a table of findings: {error}", hint=_HINT) from None
    return [replace(one, count=count) if (count := counts.get(_key(one), 0)) > len(one.ids) else one for one in found]


def _table(content: bytes, most: int) -> pa.Table:
    """Return the table in a file with at most `most` rows, with its texts in dictionaries.

    A file that would take very much memory is refused before it does, as a segment is. Raises ValueError, and Arrow's
    errors.
    """
    arrow = pyarrow()
    paths = [*_TEXTS, f"{_LISTS}.list.element"]
    file = parquet().ParquetFile(arrow.BufferReader(content), read_dictionary=paths)
    if (rows := file.metadata.num_rows) > most:
        raise ValueError(f"it has {rows:,} rows, and {REPORT} has {most:,} events of findings")
    with_dictionaries(content, file.metadata.num_columns, rows, nested=True)
    table = file.read([*_COLUMNS, _LISTS])
    word = arrow.dictionary(arrow.int32(), arrow.string())
    types = {**dict.fromkeys(_COLUMNS, arrow.int64()), **dict.fromkeys(_TEXTS, word)}
    lists = table[_LISTS]
    if any(table[name].type != kind for name, kind in types.items()) or getattr(lists.type, "value_type", None) != word:
        raise ValueError("its columns have other types")
    flat = arrow.chunked_array([chunk.flatten() for chunk in lists.chunks], word)
    if sum(word_bytes(one) for one in (table.select(_TEXTS), arrow.table([flat], [_LISTS]))) > most_bytes(len(content)):
        raise ValueError(over(len(content)))
    return table


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
