"""Reads many small files of a lake, with few of them in memory at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.storage import Storage
from eventd.lake.stored_files import StoredFile

_AT_ONCE: Final = 64 << 20
"""Bytes of files that are in memory at once."""


def read_listed(storage: Storage, files: Iterable[StoredFile], most: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield path and content of listed files, sorted by path; None for one that has more than `most` bytes.

    Missing files are left out. Few of the contents are in memory at once.
    """
    portion: list[str] = []
    size = 0
    for path, length in sorted(files):
        if length > most:
            yield path, None
            continue
        if size + length > _AT_ONCE:
            yield from sorted(storage.read_many(portion).items())
            portion, size = [], 0
        portion.append(path)
        size += length
    yield from sorted(storage.read_many(portion).items())


def read_small(storage: Storage, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of states, manifests and the like by path.

    Missing files are left out, and so are files of more than `MOST_JSON` bytes: `survey`, which judges the lake,
    reports these, and they must not stop other readers. Raises LakeUnavailable.
    """
    wanted = {*paths}
    folders = sorted({str(PurePosixPath(path).parent) for path in wanted})
    files = [file for folder in folders for file in storage.list(folder) if file.path in wanted]
    return {path: text for path, text in read_listed(storage, files, MOST_JSON) if text is not None}
