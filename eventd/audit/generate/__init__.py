"""Generates the delivery ledgers of a simulated federation, with known faults, to test the audit and to practise with.

May import: audit.report, lake, runtime.
"""

from __future__ import annotations

from collections.abc import Callable

from eventd.audit.generate.settings import GeneratorSettings
from eventd.audit.generate.truth import Truth

__all__ = ["GeneratorSettings", "Truth", "generate"]


def generate(settings: GeneratorSettings, lake: str, *, progress: Callable[[int], None] = lambda nodes: None) -> Truth:
    """Write ledgers to an empty lake (path or fsspec address); return the findings and totals to expect of an audit.

    `progress` is called after each node, with the number of nodes written so far. Raises Invalid for invalid settings,
    Conflict if the lake is not empty, MissingExtra, and LakeUnavailable.
    """
    from eventd.lake.extra import pyarrow

    pyarrow()  # its error names the missing extra
    from eventd.audit.generate.lake_writer import write_lake

    return write_lake(settings, lake, progress=progress)
