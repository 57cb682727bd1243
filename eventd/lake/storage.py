"""The storage of a lake: a local folder, or any object store that fsspec supports.

Paths are relative to the lake. A file appears whole or not at all. Errors show the lake's address without secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Protocol

from eventd.errors import LakeUnavailable, LakeUnusable, NotFound
from eventd.lake import manifest
from eventd.lake.address import shown, without_secrets
from eventd.lake.extra import fsspec
from eventd.lake.file_sizes import MOST_JSON, MOST_TEXT, TooLargeFile, larger
from eventd.lake.layout import HEAD, TEMPORARY
from eventd.lake.local_files import is_regular, make_folder, open_regular, sync_folder
from eventd.lake.store_remedies import remedy_of
from eventd.runtime.chance import Chance

_REASON_CHARACTERS = 200
"""Maximum number of characters of a store's error that a message shows."""


class StoredFile(NamedTuple):
    """A file: its path in the lake, and its size in bytes."""

    path: str
    bytes: int


class Written(NamedTuple):
    """The size of a written file, and its SHA-256 in hex."""

    bytes: int
    sha256: str


class FileReader(Protocol):
    """The interface to files that are only read."""

    def read(self, path: str) -> bytes:
        """Return the whole content of a file. Raises NotFound."""
        ...

    def read_within(self, path: str, most: int) -> bytes:
        """Return the whole content of a file. Raises NotFound, and TooLargeFile for more than `most` bytes."""
        ...


class EndReader(FileReader, Protocol):
    """The interface to files of which the end can be read alone."""

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
        """Return paths of unfinished files below a folder, being written or left over; none in an object store."""
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


def connect(url: str, noun: str = "lake") -> ConnectedStorage:
    """Return the storage for a path or an fsspec address, without contacting it; `noun` is what messages call it.

    Raises MissingExtra, and LakeUnusable for an unsupported address.
    """
    if url.startswith("file://"):
        return _Folder(Path(url.removeprefix("file://")), noun)
    return _Remote(url, noun) if "://" in url else _Folder(Path(url).expanduser().absolute(), noun)


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


class _Folder:
    """A local folder."""

    def __init__(self, root: Path, noun: str) -> None:
        self._root = root
        self._noun = noun
        self.url = str(root)

    def list(self, folder: str) -> list[StoredFile]:
        with self._trouble(f"list {folder}"):
            return sorted(e for e in self._walk(self._root / folder, folder) if not e.path.endswith(TEMPORARY))

    def unfinished(self, folder: str) -> Sequence[str]:
        with self._trouble(f"list {folder}"):
            return [e.path for e in self._walk(self._root / folder, folder) if e.path.endswith(TEMPORARY)]

    def irregular(self, folder: str) -> Sequence[str]:
        with self._trouble(f"list {folder}"):
            others = [path for path, entry in self._entries(self._root / folder, folder) if not is_regular(entry)]
        return sorted([*others, *self.unfinished(folder)])

    def _walk(self, place: Path, folder: str) -> Iterator[StoredFile]:
        for path, entry in self._entries(place, folder):
            if is_regular(entry):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    yield StoredFile(path, entry.stat(follow_symlinks=False).st_size)

    def _entries(self, place: Path, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield whatever is below a folder and is not one itself, with its path. Links are not followed."""
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except FileNotFoundError:
            return
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):  # a link may lead anywhere, also in a cycle
                yield from self._entries(place / entry.name, path)
            else:
                yield path, entry

    def read(self, path: str) -> bytes:
        with self._opened(path) as file:
            return file.read()

    def read_within(self, path: str, most: int) -> bytes:
        with self._opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            self._refuse_larger(path, size, most)
            found = file.read(size + 1)  # and not `most`, for which memory would be reserved
            self._refuse_larger(path, len(found), most)
        return found

    def sha256(self, path: str, most: int) -> str:
        with self._opened(path) as file:
            self._refuse_larger(path, os.fstat(file.fileno()).st_size, most)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _refuse_larger(self, path: str, size: int, most: int) -> None:
        if size > most:
            raise TooLargeFile(f"{path} in the {self._noun} at {self.url} {larger(most)}")

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[BufferedReader]:
        with self._trouble(f"read {path}"):
            try:
                with open_regular(self._root / path) as file:
                    yield file
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"{path} is not in the {self._noun} at {self.url}") from None

    def read_ends(self, files: Sequence[StoredFile], size: int) -> dict[str, bytes]:
        found = {}
        for path, length in files:
            with (
                self._trouble(f"read {path}"),
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                open_regular(self._root / path) as file,
            ):
                file.seek(max(0, length - size))
                found[path] = file.read(size)
        return found

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for path in paths:
            with contextlib.suppress(NotFound):
                found[path] = self.read_within(path, MOST_TEXT)
        return found

    def put(self, path: str, data: bytes) -> None:
        with self.create(path) as draft:
            draft.write(data)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[FileDraft]:
        target = self._root / path
        hidden = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY}")
        with self._trouble(f"write {path}"):
            make_folder(target.parent)
            try:
                hidden.unlink(missing_ok=True)
                with hidden.open("xb") as file:  # not through a link that another program placed there
                    draft = FileDraft(file)
                    yield draft
                    file.flush()
                    os.fsync(file.fileno())
                hidden.replace(target)
                sync_folder(target.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    hidden.unlink(missing_ok=True)
                raise

    def delete(self, paths: Iterable[str]) -> None:
        with self._trouble("delete files"):
            for path in paths:
                (self._root / path).unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # not empty, or gone
                    for folder in (self._root / path).parents[:2]:  # the folders of the node and of the day
                        folder.rmdir()

    def locate(self, path: str) -> str:
        return str(self._root / path)

    def _trouble(self, what: str) -> contextlib.AbstractContextManager[None]:
        return _local_trouble(f"{what} in the {self._noun}", self.url)


class _Remote:
    """A store behind fsspec, whose put is atomic, as in object stores."""

    def __init__(self, url: str, noun: str) -> None:
        package = fsspec()
        self._noun = noun
        self.url = shown(url)
        self._at = url.rstrip("/")
        try:
            for protocol in url.partition("://")[0].split("::"):
                package.get_filesystem_class(protocol)
        except (ImportError, ValueError) as error:
            raise LakeUnusable(
                f"no installed package can access the {noun} at {self.url}: {_reason(error, url)}",
                hint="check the address, or install the fsspec package of that store, such as s3fs, gcsfs or adlfs",
            ) from None

    @cached_property
    def _store(self) -> tuple[Any, str]:
        """Return fsspec's file system and the lake's path in it. Some stores are contacted for this."""
        fs, root = fsspec().core.url_to_fs(self._at, use_listings_cache=False)
        return fs, root

    @property
    def _fs(self) -> Any:
        return self._store[0]

    @property
    def _root(self) -> str:
        return self._store[1]

    def list(self, folder: str) -> list[StoredFile]:
        with self._trouble(f"list {folder}"):
            try:
                found: Mapping[str, Any] = self._fs.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return []
            entries = [StoredFile(self._relative(path), int(facts["size"] or 0)) for path, facts in found.items()]
            return sorted(entry for entry in entries if not entry.path.endswith(TEMPORARY))

    def unfinished(self, folder: str) -> Sequence[str]:
        return []  # an object appears whole

    def read(self, path: str) -> bytes:
        with self._trouble(f"read {path}"):
            try:
                return bytes(self._fs.cat_file(self._path(path)))
            except FileNotFoundError:
                raise NotFound(f"{path} is not in the {self._noun} at {self.url}") from None

    def read_within(self, path: str, most: int) -> bytes:
        self._refuse_larger(path, most)
        return self.read(path)

    def sha256(self, path: str, most: int) -> str:
        self._refuse_larger(path, most)
        with self._trouble(f"read {path}"), self._fs.open(self._path(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _refuse_larger(self, path: str, most: int) -> None:
        with self._trouble(f"read {path}"):
            try:
                size = int(self._fs.info(self._path(path))["size"] or 0)
            except FileNotFoundError:
                raise NotFound(f"{path} is not in the {self._noun} at {self.url}") from None
            if size > most:
                raise TooLargeFile(f"{path} in the {self._noun} at {self.url} {larger(most)}")

    def irregular(self, folder: str) -> Sequence[str]:
        return []

    def read_ends(self, files: Sequence[StoredFile], size: int) -> dict[str, bytes]:
        with self._trouble("read the ends of files"):  # concurrently, as in `read_many`
            paths, ends = [self._path(one.path) for one in files], [one.bytes for one in files]
            begins = [max(0, end - size) for end in ends]
            found: Sequence[Any] = self._fs.cat_ranges(paths, begins, ends, on_error="return") if files else ()
            bad = [e for e in found if isinstance(e, Exception) and not isinstance(e, FileNotFoundError)]
            if bad:
                raise bad[0]
            return {one.path: bytes(end) for one, end in zip(files, found, strict=True) if isinstance(end, bytes)}

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        with self._trouble("read files"):  # concurrently: a store answers many requests in the time of one
            named = {self._path(path): path for path in paths}
            if not named:
                return {}
            found: Mapping[str, Any] = self._fs.cat(list(named), on_error="return")
            bad = [e for e in found.values() if isinstance(e, Exception) and not isinstance(e, FileNotFoundError)]
            if bad:
                raise bad[0]
            known = {path.lstrip("/"): name for path, name in named.items()}
            return {known[path.lstrip("/")]: data for path, data in found.items() if isinstance(data, bytes)}

    def put(self, path: str, data: bytes) -> None:
        with self._trouble(f"write {path}"):
            self._make_parent(path)
            self._fs.pipe_file(self._path(path), data)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[FileDraft]:
        with (
            _local_trouble(f"write {path} in the {self._noun}", self.url),
            tempfile.NamedTemporaryFile(suffix=TEMPORARY) as file,
        ):
            yield FileDraft(file)
            file.flush()
            with self._trouble(f"write {path}"):
                self._make_parent(path)
                self._fs.put_file(file.name, self._path(path))

    def _make_parent(self, path: str) -> None:
        self._fs.makedirs(self._path(str(PurePosixPath(path).parent)), exist_ok=True)

    def delete(self, paths: Iterable[str]) -> None:
        with self._trouble("delete files"):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(self._path(path))

    def locate(self, path: str) -> str:
        return f"{self._at}/{path}"

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path not in ("", ".") else self._root

    def _relative(self, path: str) -> str:
        return path.lstrip("/").removeprefix(self._root.lstrip("/")).lstrip("/")

    @contextlib.contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except (NotFound, LakeUnavailable):
            raise
        except Exception as error:  # each store has errors of its own
            reason = _reason(error, self._at)
            raise LakeUnavailable(
                f"cannot {what} in the {self._noun} at {self.url}: {reason}", hint=remedy_of(error)
            ) from None


@contextlib.contextmanager
def _local_trouble(what: str, url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LakeUnavailable(f"cannot {what} at {url}: {error.strerror or error}") from None


def _reason(error: Exception, url: str) -> str:
    """Return an error of the store as one shortened line, without secrets of the address."""
    text = " ".join(without_secrets(str(error), url).split())
    return f"{type(error).__name__}: {text}"[:_REASON_CHARACTERS]
