"""Verifies a signed report: offline, with the public keys of the auditors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from eventd.audit.engine.output_files import REPORT
from eventd.audit.engine.tables import FOLDER
from eventd.audit.report.earlier import EarlierReport, read_report
from eventd.audit.report.signature import SIGNATURE, BadSignature, ReportSignature, read_signature, verify_signature
from eventd.errors import CheckFailed, NotFound
from eventd.lake.storage import Storage, connect
from federation.keys import Key


class FileState(StrEnum):
    """The state of a file of a report, compared with the signature."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    MISSING = "missing"
    NOT_SIGNED = "not signed"  # a table that was added


class ReportFile(NamedTuple):
    """One file of a report: its path in the folder, and its state."""

    path: str
    state: FileState


class VerifiedReport(NamedTuple):
    """A report whose signature is valid: the id of the key, the report, and the files that were compared."""

    key: str
    report: EarlierReport
    files: Sequence[ReportFile]

    @property
    def faults(self) -> list[ReportFile]:
        """Return the files that are not as they were signed."""
        return [file for file in self.files if file.state is not FileState.UNCHANGED]


class ReportPlace(NamedTuple):
    """The place of a report: its folder, and whether the folder was named, or report.json alone."""

    folder: Storage
    whole: bool


def find_report(where: str) -> ReportPlace:
    """Return the place of a report, given the path or address of its folder or of its report.json."""
    if where.rpartition("/")[2] != REPORT:
        return ReportPlace(connect(where), whole=True)
    parent = where.removesuffix(REPORT)
    return ReportPlace(connect(parent.rstrip("/") or ("/" if parent else ".")), whole=False)


def verify_report(where: str, keys: Sequence[Key]) -> VerifiedReport:
    """Check the signature of a report, and compare its files with it; of report.json alone, only that file.

    Raises NotFound without a report or a signature, CheckFailed if the signature or report.json is not valid, and
    LakeUnavailable.
    """
    folder, whole = find_report(where)
    text = read_whole(folder)
    try:
        read = read_signature(_signature(folder))
        verify_signature(read, keys)
    except BadSignature as error:
        raise CheckFailed(
            f"{folder.url}: {SIGNATURE} {error}", hint="fetch the report again from the auditor, or name another key"
        ) from None
    files = list(_compare(folder, read, whole=whole))
    if ReportFile(REPORT, FileState.UNCHANGED) not in files:
        raise CheckFailed(
            f"{folder.url}: {REPORT} is not the one that was signed", hint="fetch the report again from the auditor"
        )
    return VerifiedReport(read.key, read_report(text, f"{folder.url}/{REPORT}"), files)


def read_whole(folder: Storage) -> bytes:
    """Return the report.json of a folder. Raises NotFound and LakeUnavailable."""
    try:
        return folder.read(REPORT)
    except NotFound:
        raise NotFound(f"there is no report in {folder.url}: {REPORT} is missing") from None


def _signature(folder: Storage) -> bytes:
    try:
        return folder.read(SIGNATURE)
    except NotFound:
        raise NotFound(
            f"the report in {folder.url} is not signed: {SIGNATURE} is missing", hint="run the audit with --sign KEY"
        ) from None


def _compare(folder: Storage, read: ReportSignature, *, whole: bool) -> Iterator[ReportFile]:
    """Yield the state of each file, sorted by path; tables that the signature does not name are NOT_SIGNED."""
    present = [file.path for file in folder.list(FOLDER)] if whole else []
    named = read.files if whole else {REPORT: read.files.get(REPORT, "")}
    for path in sorted({*named, *present}):
        if path not in named:
            yield ReportFile(path, FileState.NOT_SIGNED)
            continue
        yield ReportFile(path, _state_of(folder, path, named[path]))


def _state_of(folder: Storage, path: str, digest: str) -> FileState:
    try:
        same = hashlib.sha256(folder.read(path)).hexdigest() == digest
    except NotFound:
        return FileState.MISSING
    return FileState.UNCHANGED if same else FileState.CHANGED
