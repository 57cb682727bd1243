"""The signature of a report: a text with the digests of its files, signed with an Ed25519 key.

All lines but those with digests are comments to `sha256sum --check`; the last one has the signature of the bytes before
it. Other programs can verify it with OpenSSL.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from federation.keys import Key

_TITLE: Final = "# routerd-eventd audit report, version 1"
_KEY: Final = "# key "
_SIGNED: Final = "# signature "
_FILE: Final = re.compile(r"([0-9a-f]{64})  (\S.*)")


class BadSignature(Exception):
    """A signature cannot be read, or is not valid.

    The text is the reason, as the end of a sentence that begins with "report.sig".
    """


class ReportSignature(NamedTuple):
    """A signature that was read: the id of its key, the SHA-256 (hex) of each file by path, and what was signed."""

    key: str
    files: Mapping[str, str]
    signed: bytes
    signature: bytes


def sign_report(key: Key, files: Mapping[str, str]) -> bytes:
    """Return the content of report.sig; `files` has the SHA-256 (hex) of each file of the report by path.

    Raises NoSigningKey for a key without a private part.
    """
    lines = [_TITLE, f"{_KEY}{key.id}", *(f"{digest}  {path}" for path, digest in sorted(files.items()))]
    signed = "".join(f"{line}\n" for line in lines).encode()
    return signed + f"{_SIGNED}{base64.b64encode(key.sign(signed)).decode()}\n".encode()


def read_signature(text: bytes) -> ReportSignature:
    """Parse the content of report.sig, without verifying it. Raises BadSignature."""
    signed, mark, last = text.rpartition(f"\n{_SIGNED}".encode())
    try:
        title, key, *lines = signed.decode().split("\n")
        signature = base64.b64decode(last.removesuffix(b"\n"), validate=True)
    except (ValueError, binascii.Error):  # also text that is not UTF-8
        raise BadSignature("is not a signature of a report") from None
    found = [_FILE.fullmatch(line) for line in lines]
    if not mark or title != _TITLE or not key.startswith(_KEY) or None in found:
        raise BadSignature("is not a signature of a report, or of another version")
    files = {match[2]: match[1] for match in found if match is not None}
    return ReportSignature(key.removeprefix(_KEY), files, signed + b"\n", signature)


def verify_signature(read: ReportSignature, keys: Sequence[Key]) -> None:
    """Check that one of the keys made the signature. Raises BadSignature."""
    for key in keys:
        if key.id == read.key:
            if key.verifies(read.signature, read.signed):
                return
            raise BadSignature("was changed after it was signed: the signature is not valid")
    raise BadSignature(f"is signed with the key {read.key}, which is none of the given keys")
