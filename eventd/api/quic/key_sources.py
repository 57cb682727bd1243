"""Reads key sets and signing keys: files in threads of their own, URLs by a client that the caller passes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from eventd.resources.stream_configuration import KeySourceConfig
from eventd.runtime.blocking_calls import BlockingCalls
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.runtime.threads import ThreadFactory
from eventd.text.credential import HINT, NoCredentials, path_of

LARGEST: Final = 1 << 20
"""Maximum bytes of a key set, and of a file with a key."""
READ_SECONDS: Final = 5.0
"""Seconds after which a file or URL that is still being read counts as unreadable."""


MARK_SECONDS: Final = 1.0
"""Seconds for which checking the files of one folder may delay the check of other folders."""


class KeySourceUnreadable(Exception):
    """A file or URL that cannot be read. The message says why; it shows neither a key nor a URL."""


class KeyContent(NamedTuple):
    """The content of a file or URL. `mode` is that of the file, `mark` changes with it; 0 and empty for a URL."""

    content: bytes
    mode: int = 0
    mark: FileMark = ()


FileMark = tuple[int, ...]
"""A text that changes when a file is written or replaced, or its owner or mode changes; empty for a missing file."""
FetchKeys = Callable[[KeySourceConfig], Awaitable[bytes]]
"""Returns the body at the URL of a source, at most `LARGEST` bytes, in `READ_SECONDS`. Raises `KeySourceUnreadable`."""


class KeySourceReader:
    """Reads key sources. `credentials` is the service manager's folder of secrets.

    A read that hangs blocks one thread, and for `READ_SECONDS` the callers that wait for this file, but nothing else.
    """

    def __init__(self, threads: ThreadFactory, credentials: Path | None, fetch: FetchKeys) -> None:
        self._calls = BlockingCalls(threads, "key sets")
        self._credentials = credentials
        self._fetch = fetch

    async def read(self, source: KeySourceConfig) -> KeyContent:
        """Return the content of a file or of a URL. Raises `KeySourceUnreadable`."""
        if source.url:
            return KeyContent(await self._fetch(source))
        try:
            path = path_of(source.file, self._credentials)
            async with asyncio.timeout(READ_SECONDS):
                return await self._calls.run(f"read {path}", str(path.parent), partial(_read, path))
        except NoCredentials as error:
            raise KeySourceUnreadable(f"{error}: {HINT}") from None
        except TimeoutError:
            raise KeySourceUnreadable(f"{source.file}: not read within {READ_SECONDS:g} s") from None
        except NotRegular:
            raise KeySourceUnreadable(f"{source.file}: not a regular file") from None
        except OSError as error:
            raise KeySourceUnreadable(f"{source.file}: cannot be read: {error.strerror}") from None

    async def marks(self, sources: Sequence[KeySourceConfig]) -> list[FileMark | None]:
        """Return the mark of each file; None for a file whose mark could not be read."""
        found: list[FileMark | None] = [None] * len(sources)
        paths: dict[int, Path] = {}
        for at, source in enumerate(sources):
            try:
                paths[at] = path_of(source.file, self._credentials)
            except NoCredentials:
                found[at] = ()
        folders: dict[Path, dict[int, Path]] = {}
        for at, path in paths.items():
            folders.setdefault(path.parent, {})[at] = path
        for folder, listed in folders.items():
            look = partial(_marks, [*listed.values()])
            try:
                async with asyncio.timeout(MARK_SECONDS):
                    marks = await self._calls.run(f"marks of {[*listed.values()]}", str(folder), look)
            except OSError:  # also a timeout; the next look may succeed
                continue
            for at, mark in zip(listed, marks, strict=True):
                found[at] = mark
        return found

    async def close(self) -> None:
        """Start no further reads."""
        self._calls.close()


def _read(path: Path) -> KeyContent:
    mark = _mark(path)  # before reading: a file that is written meanwhile has another one, and is read again
    content, mode = read_regular(path, LARGEST + 1)
    return KeyContent(content, mode, mark)


def _marks(paths: Sequence[Path]) -> list[FileMark]:
    return [_mark(path) for path in paths]


def _mark(path: Path) -> FileMark:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    # The time of the last change of the inode: a file that is given to the node's user has no other difference.
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
