"""What nodes have shipped, for tests: the rows of a book out of a lake, checked as a reader would check them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey, read_segment, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect


def look(lake: Path) -> Survey:
    """The lake, which must have no trouble."""
    found = survey(connect(str(lake)))
    assert found.troubles == [], found.troubles
    return found


def rows(lake: Path, book: Ledger, node: str = "") -> list[dict[str, Any]]:
    """Every row of a book, of one node or of all, in the order of its numbers."""
    storage, found = connect(str(lake)), []
    for segment in look(lake).segments:
        if segment.place.book is book and node in ("", segment.manifest.node):
            found += read_segment(storage, segment).to_pylist()
    return found


def state(lake: Path, node: str) -> NodeState:
    """What a node says of its books in its latest epoch."""
    return max((one for one in look(lake).nodes if one.node == node), key=lambda one: one.began_at)


def files(lake: Path, ending: str = ".parquet") -> set[Path]:
    """Every file of a kind that lies in the lake, hidden ones too."""
    return {path.relative_to(lake) for path in lake.rglob(f"*{ending}")}
