"""Generates the delivery ledgers of a simulated federation, with known faults, to test the audit and to practise with.

May import: audit.report, lake, runtime.
"""

from __future__ import annotations

from collections.abc import Callable

from eventd.audit.generate.settings import Settings
from eventd.audit.generate.truth import Truth

__all__ = ["Settings", "Truth", "generate"]


def generate(settings: Settings, lake: str, *, progress: Callable[[int], None] = lambda nodes: None) -> Truth:
    """Write the ledgers to an empty lake (a path or an fsspec address), and return the findings of a correct audit.

    `progress` is called with the number of nodes whose ledgers are written. Raises Invalid for invalid settings,
    Conflict if the lake is not empty, MissingExtra, and LakeUnavailable.
    """
    from eventd.lake.extra import pyarrow

    pyarrow()  # its error names the missing extra
    from eventd.audit.generate.lake_writer import write_lake

    return write_lake(settings, lake, progress=progress)
