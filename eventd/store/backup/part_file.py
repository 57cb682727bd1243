"""The file that a command fills before it gets its final name, safe in a folder where another user may write.

Such a user can put a link, or another file, in the place of any name in the folder. So owner, mode and final name are
given to the file that this process created, and never to what has its name now.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eventd.errors import Conflict

_PERMISSIONS = 0o777
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file that this process created at `path`, and holds open.

    Danger: closing the handle releases the locks of SQLite on the file, so it stays open until SQLite has closed it.
    """

    path: Path
    handle: int

    @classmethod
    def create(cls, path: Path) -> PartFile:
        """Create an empty file that only this user may read. Raises `Conflict` if the name exists, also as a link."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return cls(path, os.open(path, flags, _PRIVATE))
        except FileExistsError:
            raise Conflict(f"{path} exists already", hint="move it away, and run the command again") from None

    def give_to_owner(self, place: Path) -> None:
        """Give the file the mode of the file at `place` and, if permitted, its owner, so that the node can open it.

        Without such a file, it gets the owner of the folder, if permitted. Raises `Conflict` as `require_unchanged`.
        """
        self.require_unchanged()
        owner = (place if place.exists() else place.parent).stat()
        if stat.S_ISREG(owner.st_mode):
            os.fchmod(self.handle, stat.S_IMODE(owner.st_mode) & _PERMISSIONS)
        with suppress(PermissionError):
            os.fchown(self.handle, owner.st_uid, owner.st_gid)

    def replace(self, place: Path) -> None:
        """Rename the file to `place`. Raises `Conflict` as `require_unchanged`."""
        self.require_unchanged()
        self.path.replace(place)

    def require_unchanged(self) -> None:
        """Raise `Conflict` unless the name is still that of this file, and no other name is."""
        own = os.fstat(self.handle)
        try:
            named = os.lstat(self.path)
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino) or own.st_nlink != 1:
            raise Conflict(
                f"{self.path} is no longer the file that was created: another process moved or replaced it",
                hint="find out which user may write to the folder, and run the command again",
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self.handle)
