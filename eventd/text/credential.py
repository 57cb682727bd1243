"""`credential:NAME`: the file NAME in the folder `$CREDENTIALS_DIRECTORY`, which the service manager provides."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CREDENTIAL: Final = "credential:"
HINT: Final = "set CREDENTIALS_DIRECTORY; systemd does so for LoadCredential="
"""The next step after `NoCredentials`."""


class NoCredentials(Exception):
    """A credential is named, and no folder of credentials is known."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} needs a credentials directory")


def path_of(name: str, credentials: Path | None) -> Path:
    """Return the path of a file, given by path or as `credential:NAME`. Raises `NoCredentials`."""
    if not name.startswith(CREDENTIAL):
        return Path(name)
    if credentials is None:
        raise NoCredentials(name)
    return credentials / name.removeprefix(CREDENTIAL)
