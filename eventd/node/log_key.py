"""The key with which a node signs the history of its groups: a file beside its data, and never in the database.

A copy of the database is then not enough to sign in the node's name, and a backup of it holds no secret.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventd.errors import SettingsError
from eventd.runtime.chance import Chance

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE: Final = "history.key"
"""The name of the file in the data directory."""
_BYTES: Final = 32
_PREFIX: Final = "log "


def load_log_key(folder: Path, chance: Chance) -> Ed25519PrivateKey:
    """Return the key in this folder, which is made at the first start. Raises `SettingsError` if it cannot be used."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = folder / KEY_FILE
    try:
        if not path.exists():
            _make(path, chance.token(_BYTES), chance.token(8).hex())
        return Ed25519PrivateKey.from_private_bytes(_parse(path.read_text(encoding="ascii")))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the key of the history in {path} cannot be used: {error}",
            hint="restore the file from where it was kept; without it, move it away: a new key and new trees begin",
        ) from None


def _parse(text: str) -> bytes:
    line = text.removesuffix("\n")
    if not line.startswith(_PREFIX) or "\n" in line:
        raise ValueError("it must have one line, `log` and 32 bytes in base64")
    return b64decode(line.removeprefix(_PREFIX), validate=True)


def _make(path: Path, secret: bytes, suffix: str) -> None:
    """Write the file whole or not at all; one that another process of the node has made meanwhile stays."""
    new = path.with_name(f"{path.name}.{suffix}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(f"{_PREFIX}{b64encode(secret).decode()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
