"""Reads shipped ledger tables from a lake for tests, and checks them as a reader would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect


def survey_lake(lake: Path) -> Survey:
    """Return the survey of the lake, which must have no problem."""
    found = survey(connect(str(lake)))
    assert found.troubles == [], found.troubles
    return found


def rows(lake: Path, book: Ledger, node: str = "") -> list[dict[str, Any]]:
    """Return every row of a table, of one node or of all, in the order of their numbers."""
    storage, found = connect(str(lake)), []
    for segment in survey_lake(lake).segments:
        if segment.place.book is book and node in ("", segment.manifest.node):
            found += read_segment(storage, segment).to_pylist()
    return found


def state(lake: Path, node: str) -> NodeState:
    """Return the latest state that a node shipped."""
    return max((one for one in survey_lake(lake).nodes if one.node == node), key=lambda one: one.began_at)


def files(lake: Path, ending: str = ".parquet") -> set[Path]:
    """Return every file of a kind in the lake, hidden ones included."""
    return {path.relative_to(lake) for path in lake.rglob(f"*{ending}")}
