"""The keys with which a node signs its histories and cosigns those of others: a file beside its data.

They are never in the database: a copy of it is then not enough to sign in the node's name, and a backup of it holds no
secret.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from eventd.errors import Conflict, SettingsError
from eventd.runtime.chance import Chance

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

logger = logging.getLogger("eventd.history")

KEY_FILE: Final = "history.key"
"""The name of the file in the data directory."""
_BYTES: Final = 32
LOG, WITNESS, RETIRED = "log", "witness", "retired"


class NodeKeys(NamedTuple):
    """The private keys of a node: of its trees, and with which it cosigns those of others.

    `retired` was the key of its trees before a rotation: it signs the change, and nothing else.
    """

    log: Ed25519PrivateKey
    witness: Ed25519PrivateKey
    retired: Ed25519PrivateKey | None = None


def load_history_keys(folder: Path, chance: Chance) -> NodeKeys:
    """Return the keys in this folder; missing ones are made. Raises `SettingsError` if the file cannot be used."""
    path = folder / KEY_FILE
    try:
        with _locked(folder):
            found = _parse(path.read_text(encoding="ascii")) if path.exists() else {}
            made = {name: found.get(name) or chance.token(_BYTES) for name in (LOG, WITNESS)}
            if found | made != found:
                _write(path, found | made, chance.token(8).hex())
            return _keys(found | made)
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


class LoadedKeys:
    """The keys of this node, read from their file when they are first needed, and again when it has changed.

    A process has one for all groups: so a group that is declared after the file was deleted makes no other keys, which
    would end the trees of all groups. `load` may be called from several threads.
    """

    def __init__(self, folder: Path, chance: Chance) -> None:
        self._folder = folder
        self._chance = chance
        self._lock = threading.Lock()
        self._loaded: tuple[int, NodeKeys] | None = None
        self._is_missing = False

    def load(self) -> NodeKeys:
        """Return the keys. Raises `SettingsError` if their file cannot be used."""
        with self._lock:
            stamp = stamp_of(self._folder)
            if self._loaded is not None and not stamp:
                self._note_missing()
                return self._loaded[1]
            self._is_missing = False
            if self._loaded is None or self._loaded[0] != stamp:
                keys = load_history_keys(self._folder, self._chance)
                self._loaded = stamp_of(self._folder), keys
            return self._loaded[1]

    def _note_missing(self) -> None:
        """Log once that the file was deleted. The node keeps using the loaded keys, because a new key would end each
        tree."""
        if not self._is_missing:
            hint = "restore the file; without it, the next start creates new keys and opens new trees"
            logger.warning("history key missing", extra={"file": str(self._folder / KEY_FILE), "hint": hint})
        self._is_missing = True


def read_witness_key(folder: Path, group: str, node: str) -> str | None:
    """Return the verifier key with which a node cosigns in a group; None before it has one."""
    from federation.history.notes import WITNESS_KEY, NoteSigner
    from federation.history.witnessing import witness_name

    try:
        secrets = _parse((folder / KEY_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    if WITNESS not in secrets:
        return None
    return NoteSigner(witness_name(group, node), WITNESS_KEY, _keys(secrets).witness).key.text()


def read_history_keys(folder: Path) -> NodeKeys | None:
    """Return the keys in this folder; None before the node has made them, and if the file cannot be used."""
    try:
        return _keys({WITNESS: bytes(_BYTES)} | _parse((folder / KEY_FILE).read_text(encoding="ascii")))
    except (OSError, ValueError):
        return None


def stamp_of(folder: Path) -> int:
    """Return a number that changes when the key file is replaced; 0 without one."""
    try:
        found = (folder / KEY_FILE).stat()
    except OSError:
        return 0
    return hash((found.st_ino, found.st_mtime_ns))


def rotate_log_key(folder: Path, chance: Chance, signing: Collection[bytes] = (), *, lost: bool) -> NodeKeys:
    """Replace the key of the trees by a new one, and return the keys; the replaced one signs the change unless `lost`.

    `signing` are the public keys of the trees that are open. Raises `SettingsError` if the file cannot be used, and
    `Conflict` if the replaced key is not that of all these trees: peers would refuse the change of another one.
    """
    path = folder / KEY_FILE
    try:
        with _locked(folder):
            found = {} if lost and not path.exists() else _parse(path.read_text(encoding="ascii"))
            if not lost and {*signing} - {_public(found[LOG])}:
                raise Conflict(
                    "a tree is open that another key signs: its change to the present key must be signed first",
                    hint="wait until the node that runs has opened the next tree: routerctl log status",
                )
            made = {LOG: chance.token(_BYTES), WITNESS: found.get(WITNESS) or chance.token(_BYTES)}
            made |= {RETIRED: found[LOG]} if LOG in found and not lost else {}
            _write(path, made, chance.token(8).hex())
            return _keys(made)
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _keys(secrets: dict[str, bytes]) -> NodeKeys:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    read = Ed25519PrivateKey.from_private_bytes
    retired = secrets.get(RETIRED)
    return NodeKeys(read(secrets[LOG]), read(secrets[WITNESS]), None if retired is None else read(retired))


def _public(secret: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _unusable(path: Path, error: Exception) -> SettingsError:
    return SettingsError(
        f"the keys of the history in {path} cannot be used: {error}",
        hint="restore the file from where it was kept; without it, move it away: new keys and new trees begin",
    )


def _parse(text: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for line in text.splitlines():
        name, blank, secret = line.partition(" ")
        if name not in (LOG, WITNESS, RETIRED) or not blank or name in found:
            raise ValueError("each line must be `log`, `witness` or `retired`, a blank, and 32 bytes in base64")
        found[name] = b64decode(secret, validate=True)
        if len(found[name]) != _BYTES:
            raise ValueError(f"the key `{name}` has {len(found[name])} bytes, not {_BYTES}")
    if LOG not in found:
        raise ValueError("it has no line `log`")
    return found


def _write(path: Path, secrets: dict[str, bytes], suffix: str) -> None:
    """Write the file whole or not at all."""
    new = path.with_name(f"{path.name}.{suffix}")
    lines = [f"{name} {b64encode(secret).decode()}\n" for name, secret in secrets.items()]
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder: of several processes of a node that start at the same time, one makes the keys."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
