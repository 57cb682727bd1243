"""The one form in which numbers, hashes and signatures are written: another spelling of the same value is refused.

A value with two spellings has two signatures, and two programs may read different things from one file.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

from federation.errors import MalformedHistory
from federation.history.merkle import HASH_SIZE

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_MOST_QUOTED: Final = 80


def quote(text: str) -> str:
    """Return a text from outside as an error quotes it."""
    return repr(text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…")


def read_number(text: str, what: str, most: int) -> int:
    """Return a decimal number from 0 to `most`, without sign and leading zeros. Raises MalformedHistory."""
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise MalformedHistory(
            f"{what} is {quote(text)}: it must be a decimal number from 0 to {most} without leading zeros",
            reason="number",
        )
    return int(text)


def read_base64(text: str, what: str) -> bytes:
    """Return the bytes of padded standard base64 in its canonical form. Raises MalformedHistory."""
    try:
        value = b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        value = None
    # A decoder ignores the last bits of "QR==", so that two texts would mean the same byte.
    if value is None or write_base64(value) != text:
        raise MalformedHistory(f"{what} is {quote(text)}: it must be canonical, padded base64", reason="base64")
    return value


def write_base64(value: bytes) -> str:
    """Return padded standard base64."""
    return b64encode(value).decode("ascii")


def read_hash(text: str, what: str) -> bytes:
    """Return a hash that is written in base64. Raises MalformedHistory."""
    value = read_base64(text, what)
    if len(value) != HASH_SIZE:
        raise MalformedHistory(f"{what} has {len(value)} bytes: a hash has {HASH_SIZE}", reason="hash")
    return value
