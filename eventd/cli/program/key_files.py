"""Reads Ed25519 keys from files that the command line names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventd.cli.terminal.output import note
from eventd.errors import SecretUnreadable
from eventd.runtime.regular_files import NotRegular, RegularFile, read_regular
from eventd.settings.values import rights_of_others

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from federation.keys import Key

LONGEST_KEY_FILE: Final = 64 << 10
_PEM: Final = re.compile(rb"-----BEGIN [^-]+-----(?:(?!-----BEGIN ).)*?-----END [^-]+-----", re.DOTALL)
_RESOURCE: Final = re.compile(rb"""^[ \t{-]*["']?(apiVersion|kind)["']?\s*:""", re.MULTILINE)
"""Matches a field that resources have, in YAML or JSON."""


def read_private_key(file: Path, *, hint: str) -> Ed25519PrivateKey:
    """Return the private key in a file: PEM, or 32 bytes in base64.

    Raises `SecretUnreadable` with `hint`; it shows nothing of the content.
    """
    return _private_key(file, _read(file).content, hint)


def read_signing_key(file: Path) -> Key:
    """Return the private key in a file, PEM only, as a key that signs; its id is the pin of its public part.

    Notes on stderr if every user may read or change the file. Raises `SecretUnreadable`.
    """
    from federation.ed25519 import pin
    from federation.keys import Key
    from federation.peers import ANY

    # Read once: if the file is replaced meanwhile, the pin is still that of the key that signs.
    content, mode = _read(file)
    hint = "create one with openssl genpkey -algorithm ed25519"
    # 32 bytes in base64 may be the secret of a group, with which each of its nodes could sign.
    if not _PEM.search(content):
        raise _no_private_key(file, hint)
    private = _private_key(file, content, hint)
    if rights := rights_of_others(mode):
        note(f"note: every user of this machine may {rights} {file}: chmod o= {file}")
    return Key.ed25519(pin(private.public_key()), private=content, owner=ANY)


def read_public_keys(files: Sequence[Path]) -> list[Key]:
    """Return the public keys in files, each of which holds one or several: PEM, or 32 bytes in base64.

    The id of each is its pin. Raises `SecretUnreadable`.
    """
    from federation.ed25519 import pin, read_public
    from federation.errors import BadKey
    from federation.keys import Key
    from federation.peers import ANY

    keys = []
    for file in files:
        content = _read(file).content
        if _RESOURCE.search(content):  # before its fields are searched for keys
            raise SecretUnreadable(
                f"{file} holds resources, and not public keys as PEM",
                hint="name the file with the public key of the auditor; EventGroups are for --keys of audit run",
            )
        for part in _PEM.findall(content) or [content]:
            try:
                public = read_public(file.name, part)
            except BadKey:
                raise SecretUnreadable(
                    f"{file} does not hold Ed25519 public keys as PEM",
                    hint="write the public part of a key with openssl pkey -in KEY -pubout",
                ) from None
            keys.append(Key.ed25519(pin(public), public=part, owner=ANY))
    return keys


def _private_key(file: Path, content: bytes, hint: str) -> Ed25519PrivateKey:
    from federation.ed25519 import read_private
    from federation.errors import BadKey

    try:
        return read_private(file.name, content)
    except BadKey:
        raise _no_private_key(file, hint) from None


def _no_private_key(file: Path, hint: str) -> SecretUnreadable:
    return SecretUnreadable(f"{file} does not hold an unencrypted Ed25519 private key as PEM", hint=hint)


def _read(file: Path) -> RegularFile:
    try:
        return read_regular(file, LONGEST_KEY_FILE)
    except NotRegular:
        raise SecretUnreadable(f"{file} is not a file", hint="name the file of the key") from None
    except OSError as error:
        raise SecretUnreadable(f"cannot read {file}: {error.strerror}", hint="check its path and permissions") from None
