"""Delivery ledgers of an imaginary federation, of any size, with faults that are known beforehand.

May import: audit.report, lake, runtime.
"""

from __future__ import annotations

from collections.abc import Callable

from eventd.audit.generate.settings import Settings
from eventd.audit.generate.truth import Truth

__all__ = ["Settings", "Truth", "generate"]


def generate(
    settings: Settings, lake: str, *, processes: int = 1, told: Callable[[int], None] = lambda nodes: None
) -> Truth:
    """Write the books into an empty lake (a path or an fsspec address), and say what is hidden in them.

    `told` is told how many nodes' books are written. Raises Invalid for settings that cannot be, Conflict where
    something lies already, MissingExtra, LakeUnavailable.
    """
    from eventd.lake.extra import pyarrow

    pyarrow()  # says which extra is missing
    from eventd.audit.generate.running import write_lake

    return write_lake(settings, lake, processes=processes, told=told)
