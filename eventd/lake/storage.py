"""The storage of a lake: a local folder, or any object store that fsspec supports.

Paths are relative to the lake. A file appears whole or not at all. Errors show the lake's address without secrets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from eventd.errors import LakeUnusable, NotFound
from eventd.lake import manifest
from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.folder import LocalFolder
from eventd.lake.layout import HEAD
from eventd.lake.object_store import ObjectStore
from eventd.lake.stored_files import FileDraft, StoredFile
from eventd.runtime.chance import Chance


class FileReader(Protocol):
    """The interface to files that are only read."""

    def read(self, path: str) -> bytes:
        """Return the whole content of a file. Raises NotFound."""
        ...

    def read_within(self, path: str, most: int) -> bytes:
        """Return the whole content of a file. Raises NotFound, and TooLargeFile for more than `most` bytes."""
        ...


class EndReader(FileReader, Protocol):
    """The interface to files whose last bytes can be read without the rest."""

    def read_ends(self, files: Sequence[StoredFile], size: int) -> dict[str, bytes]:
        """Return by path the last `size` bytes of files, or all of smaller ones; missing files are left out."""
        ...


class Storage(FileReader, Protocol):
    """The interface to the files of a lake. Every method but `locate` raises LakeUnavailable when the store fails."""

    url: str
    """The address to show: without user, password and query."""

    def list(self, folder: str) -> list[StoredFile]:
        """Return the complete files below a folder, without links, sorted by path; empty for a missing folder."""
        ...

    def unfinished(self, folder: str) -> Sequence[str]:
        """Return the paths of unfinished files below a folder, which are being written or are left over.

        An object store has none.
        """
        ...

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Read small files, and return their contents by path; missing files are left out."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file durably, replacing an existing one."""
        ...

    def create(self, path: str) -> contextlib.AbstractContextManager[FileDraft]:
        """Write a file piece by piece in a `with` block; it appears at the end, or not at all if the block fails."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and emptied folders of a local lake; missing files are ignored."""
        ...

    def locate(self, path: str) -> str:
        """Return the path or address of a file for other programs. It may hold a secret and must not be shown."""
        ...


class ConnectedStorage(Storage, EndReader, Protocol):
    """The interface to the files of a lake that this process reaches by itself, without Spark."""

    def sha256(self, path: str, most: int) -> str:
        """Return the digest of a file in hex, without having it in memory. Raises like `read_within`."""
        ...

    def irregular(self, folder: str) -> Sequence[str]:
        """Return paths of links, pipes and unfinished files below a folder; none in an object store."""
        ...


def connect(url: str, noun: str = "lake") -> ConnectedStorage:
    """Return the storage for a path or an fsspec address, without contacting it; `noun` is what messages call it.

    Raises MissingExtra, and LakeUnusable for an unsupported address.
    """
    if url.startswith("file://"):
        return LocalFolder(Path(url.removeprefix("file://")), noun)
    return ObjectStore(url, noun) if "://" in url else LocalFolder(Path(url).expanduser().absolute(), noun)


def open_lake(storage: Storage) -> manifest.LakeHead:
    """Read the head of a lake.

    Raises NotFound for a folder that is not a lake, LakeUnusable for a head that cannot be decoded or has another
    schema version, and LakeUnavailable.
    """
    try:
        text = storage.read_within(HEAD, MOST_JSON)
    except NotFound:
        raise NotFound(
            f"there is no lake at {storage.url}: {HEAD} is missing",
            hint="give the address in EVENTD_LAKE; a node creates the lake when it first ships",
        ) from None
    try:
        return manifest.decode(text, manifest.LakeHead)
    except manifest.Unreadable as error:
        other = isinstance(error, manifest.OtherSchema)
        hint = "use the version of this program that wrote it" if other else "restore the file from a backup"
        raise LakeUnusable(f"the lake at {storage.url} cannot be read: {HEAD} {error}", hint=hint) from None


def make_lake(storage: Storage, now: int, chance: Chance) -> manifest.LakeHead:
    """Return the head of a lake, created with a random id if it is missing. Raises LakeUnusable and LakeUnavailable."""
    try:
        return open_lake(storage)
    except NotFound:
        storage.put(HEAD, manifest.encode(manifest.LakeHead(id=chance.token(8).hex(), made_at=now)))
        return open_lake(storage)  # two nodes may create it at the same time: the later one counts for both
