"""Verifies a signed report offline, with the public keys of the auditors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from eventd.audit.report.file_names import DELTA, LOCK, REPORT, SIGNATURE, UNSIGNED
from eventd.audit.report.signature import BadSignature, ReportSignature, read_signature, verify_signature
from eventd.audit.review.earlier import MOST_TABLE, ReadReport, find_report, parse_report, read_text
from eventd.errors import CheckFailed, NotFound
from eventd.lake.storage import ConnectedStorage
from federation.keys import Key

_MOST_SIGNATURE: Final = 1 << 20
"""Bytes of the largest signature: it has a line for each file."""


class FileState(StrEnum):
    """The state of a file of a report, compared with the signature."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    MISSING = "missing"
    NOT_SIGNED = "not signed"  # it was added
    NOT_REGULAR = "not a regular file"  # a link or a pipe, which other programs may follow or read


class ReportFile(NamedTuple):
    """One file of a report: its path in the folder, and its state."""

    path: str
    state: FileState


class VerifiedReport(NamedTuple):
    """A report whose signature is valid: the id of the key, the report, and the files that were compared.

    `report` is None if report.json is not as it was signed: nothing that it says is to be shown. `delta`: how many
    files of Delta tables are beside it, which no signature covers.
    """

    key: str
    report: ReadReport | None
    files: Sequence[ReportFile]
    delta: int = 0

    @property
    def faults(self) -> list[ReportFile]:
        """Return the files that are not as they were signed."""
        return [file for file in self.files if file.state is not FileState.UNCHANGED]


def verify_report(where: str, keys: Sequence[Key]) -> VerifiedReport:
    """Check the signature of a report, and compare its files with it; of report.json alone, only that file.

    Raises NotFound without a report or a signature, CheckFailed if the signature is not valid, and LakeUnavailable.
    """
    folder, whole = find_report(where)
    text = read_text(folder)
    try:
        read = read_signature(_signature(folder))
        verify_signature(read, keys)
    except BadSignature as error:
        raise CheckFailed(
            f"{folder.url}: {SIGNATURE} {error}", hint="fetch the report again from the auditor, or name another key"
        ) from None
    files = list(_compare(folder, read, text, whole=whole))
    genuine = ReportFile(REPORT, FileState.UNCHANGED) in files
    delta = len(_delta_files(folder)) if whole else 0
    return VerifiedReport(read.key, parse_report(text, folder.url) if genuine else None, files, delta)


def _signature(folder: ConnectedStorage) -> bytes:
    try:
        return folder.read_within(SIGNATURE, _MOST_SIGNATURE)
    except NotFound:
        raise NotFound(
            f"the report in {folder.url} is not signed: {SIGNATURE} is missing", hint="run the audit with --sign KEY"
        ) from None


def _compare(folder: ConnectedStorage, read: ReportSignature, report: bytes, *, whole: bool) -> Iterator[ReportFile]:
    """Yield the state of each file, sorted by path; files that the signature does not name are NOT_SIGNED.

    Files that only an audit reads do not count. `report` is the content of report.json: it is not read again, because
    another process may replace it meanwhile.
    """
    present = {file.path for file in folder.list("")} - {SIGNATURE, LOCK} if whole else set()
    irregular = set(folder.irregular("")) if whole else set()
    named = {REPORT: "", **read.files} if whole else {REPORT: read.files.get(REPORT, "")}
    for path in sorted({*named, *filter(_counts, present | irregular)}):
        if path in irregular:
            yield ReportFile(path, FileState.NOT_REGULAR)
        elif path not in named:
            yield ReportFile(path, FileState.NOT_SIGNED)
        elif path == REPORT:
            same = hashlib.sha256(report).hexdigest() == named[path]
            yield ReportFile(path, FileState.UNCHANGED if same else FileState.CHANGED)
        else:
            yield ReportFile(path, _state_of(folder, path, named[path]))


def _delta_files(folder: ConnectedStorage) -> set[str]:
    """Return the files below the folder of Delta tables; links count, because readers of the tables follow them."""
    paths = {*(file.path for file in folder.list("")), *folder.irregular("")}
    return {path for path in paths if path.startswith(f"{DELTA}/")}


def _counts(path: str) -> bool:
    """Return whether a file may be mistaken for a file of the report.

    A link counts as a file even if it has the name of a folder.
    """
    folder, slash, _ = path.partition("/")
    return not (slash and folder in UNSIGNED)


def _state_of(folder: ConnectedStorage, path: str, digest: str) -> FileState:
    try:
        same = folder.sha256(path, MOST_TABLE) == digest
    except NotFound:
        return FileState.MISSING
    return FileState.UNCHANGED if same else FileState.CHANGED
