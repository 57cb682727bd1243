"""Names the segment that turned out to be damaged while a task, or the driver, read it again.

Such a segment was whole when it was read first, by this run or an earlier one: its cells are known, and count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from eventd.lake.segment_file import BadSegment, parsing

_IN_TEXT: Final = re.compile(r"DamagedSegment: segment (\S+): ([^\n]+)")
"""Matches the error in the text of Spark, which reports the exceptions of other processes."""


class DamagedSegment(Exception):
    """A segment cannot be read; the arguments are its name and the reason, with "its" for the segment's."""

    def __str__(self) -> str:
        name, reason = self.args
        return f"segment {name}: {reason}"


class Damage(NamedTuple):
    """The name of a damaged segment, and the reason why it cannot be read."""

    name: str
    reason: str


@contextmanager
def name_damage(name: str) -> Iterator[None]:
    """Raise DamagedSegment instead of BadSegment, and of Arrow's errors, while the segment of this name is read."""
    try:
        with parsing():
            yield
    except BadSegment as error:
        raise DamagedSegment(name, str(error)) from error


def damage_in(error: BaseException) -> Damage | None:
    """Return the damaged segment that an exception names, also one of Spark; None for another exception."""
    if isinstance(error, DamagedSegment):
        return Damage(*error.args)
    found = _IN_TEXT.search(str(error))
    return Damage(found[1], found[2].strip()) if found else None
