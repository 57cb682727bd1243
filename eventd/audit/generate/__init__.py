"""Delivery ledgers of an imaginary federation to practise on, with faults that are known beforehand.

May import: audit.report, lake, runtime.
"""

from __future__ import annotations

from collections.abc import Callable

from eventd.audit.generate.settings import Settings
from eventd.audit.generate.truth import Truth

__all__ = ["Settings", "Truth", "generate"]


def generate(settings: Settings, lake: str, *, progress: Callable[[int], None] = lambda nodes: None) -> Truth:
    """Write the ledgers into an empty lake (a path or an fsspec address), and return its faults.

    `progress` is called with the number of nodes whose ledgers are written. Raises Invalid for settings that cannot be,
    Conflict where the lake is not empty, MissingExtra, LakeUnavailable.
    """
    from eventd.lake.extra import pyarrow

    pyarrow()  # says which extra is missing
    from eventd.audit.generate.lake_writer import write_lake

    return write_lake(settings, lake, progress=progress)
