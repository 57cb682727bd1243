"""Sizes in bytes as people write them: `1048576`, `512KiB`, `8MiB`, `1GiB`, or decimal `10MB`."""

from __future__ import annotations

import re

from eventd.errors import Invalid
from eventd.text.quoting import quoted

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
LARGEST = 2**63 - 1

PATTERN = r"[0-9]{1,19}(?:B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?"

_WHOLE = re.compile(r"([0-9]{1,19})(\s*)([A-Za-z]*)")
_BINARY = {"TiB": 1024 * GIB, "GiB": GIB, "MiB": MIB, "KiB": KIB}
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, **_BINARY}


class BadSize(Invalid):
    """The text is not a size: badly written or too large."""

    code = "bad_size"


def parse_size(text: str) -> int:
    """Parse a size, written without blanks or sign, to bytes. Raises BadSize."""
    match = _WHOLE.fullmatch(text)
    if not match or match[2] or match[3] not in _UNITS:
        raise BadSize(
            f"{quoted(text)} is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB", hint=_hint(match)
        )
    size = int(match[1]) * _UNITS[match[3]]
    if size > LARGEST:
        raise BadSize(f"{quoted(text)} is larger than the largest size, {LARGEST} bytes")
    return size


def _hint(match: re.Match[str] | None) -> str:
    meant = [unit for unit in (*_BINARY, "kB", "MB", "GB", "TB") if match and match[3].lower() in _spellings(unit)]
    return f"did you mean {match[1]}{meant[0]}?" if match and meant else ""


def _spellings(unit: str) -> tuple[str, ...]:
    return (unit.lower(), unit[0].lower(), unit.lower().removesuffix("b"))


def format_size(size: int) -> str:
    """Format bytes in the largest binary unit without a remainder: `8MiB`, `1536KiB`; otherwise as a plain number."""
    for unit, factor in _BINARY.items():
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
