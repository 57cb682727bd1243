"""Bounds the sizes of files that are read as one text: a sparse file, which takes no space on disk, may be a terabyte
long."""

from __future__ import annotations

from typing import Final

from eventd.errors import LakeUnavailable

MOST_JSON: Final = 16 << 20
"""Bytes of the largest state or manifest that readers accept."""
MOST_TEXT: Final = 256 << 20
"""Bytes of the largest other text in a lake or of a report that is read as a whole."""


MOST_KEPT: Final = 2 << 30
"""Bytes of the largest file that an audit keeps beside its report, and that it reads again."""


class TooLargeFile(LakeUnavailable):
    """A file has more bytes than a reader accepts."""


def larger(most: int) -> str:
    """Return the reason why a file of more than `most` bytes is not read, as a text that follows the file's name."""
    return f"has more than {most >> 20:,} MiB"
