"""The files of a storage as values: one that is stored, one that is being written, and one that is in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from eventd.errors import NotFound
from eventd.lake.file_sizes import TooLargeFile, larger


class StoredFile(NamedTuple):
    """A file: its path in the lake, and its size in bytes."""

    path: str
    bytes: int


class Written(NamedTuple):
    """The size of a written file, and its SHA-256 in hex."""

    bytes: int
    sha256: str


class FileDraft:
    """A file that is being written, as `Storage.create` gives it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append all of `data`, any bytes-like object."""
        view = memoryview(data)
        self._file.write(view)
        self._hash.update(view)
        self._bytes += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Do nothing; part of the interface of files."""

    def tell(self) -> int:
        """Return the number of bytes written until now."""
        return self._bytes

    @property
    def written(self) -> Written:
        """Return the size and digest of the data written until now."""
        return Written(self._bytes, self._hash.hexdigest())


class FileInMemory:
    """One file, whose content has been read already."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data

    def read(self, path: str) -> bytes:
        """Return the content. Raises NotFound for another path."""
        if path != self._path:
            raise NotFound(f"{path} is not in memory")
        return self._data

    def read_within(self, path: str, most: int) -> bytes:
        """Return the content, if it has at most `most` bytes. Raises NotFound and TooLargeFile."""
        if len(found := self.read(path)) > most:
            raise TooLargeFile(f"{path} {larger(most)}")
        return found

    def read_ends(self, files: Sequence[StoredFile], size: int) -> dict[str, bytes]:
        """Return the last `size` bytes, if this file is among those wanted."""
        return {path: self._data[-size:] for path, _ in files if path == self._path}
