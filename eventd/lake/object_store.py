"""A store behind fsspec as the storage of a lake."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from eventd.errors import LakeUnavailable, LakeUnusable, NotFound
from eventd.lake.address import shown, without_secrets
from eventd.lake.extra import fsspec
from eventd.lake.file_sizes import TooLargeFile, larger
from eventd.lake.folder import local_trouble
from eventd.lake.layout import TEMPORARY
from eventd.lake.store_remedies import remedy_of
from eventd.lake.stored_files import FileDraft, StoredFile

_REASON_CHARACTERS = 200
"""Maximum number of characters of a store's error that a message shows."""


class ObjectStore:
    """A store whose put is atomic; see `Storage` for the methods. `noun`: what messages call it."""

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
            local_trouble(f"write {path} in the {self._noun}", self.url),
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


def _reason(error: Exception, url: str) -> str:
    """Return an error of the store as one shortened line, without secrets of the address."""
    text = " ".join(without_secrets(str(error), url).split())
    return f"{type(error).__name__}: {text}"[:_REASON_CHARACTERS]
