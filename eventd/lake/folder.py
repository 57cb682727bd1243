"""A local folder as the storage of a lake."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from eventd.errors import LakeUnavailable, NotFound
from eventd.lake.file_sizes import MOST_TEXT, TooLargeFile, larger
from eventd.lake.layout import TEMPORARY
from eventd.lake.local_files import is_regular, make_folder, open_regular, sync_folder
from eventd.lake.stored_files import FileDraft, StoredFile


class LocalFolder:
    """A local folder; see `Storage` for the methods. `noun`: what messages call it."""

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
        return local_trouble(f"{what} in the {self._noun}", self.url)


@contextlib.contextmanager
def local_trouble(what: str, url: str) -> Iterator[None]:
    """Raise LakeUnavailable, which names the address, for an OSError in a `with` block."""
    try:
        yield
    except OSError as error:
        raise LakeUnavailable(f"cannot {what} at {url}: {error.strerror or error}") from None
