"""The files of a lake, for an attacker with write access: rows are edited, and manifests made to fit.

It knows the format from its page only: JSON, Parquet and SHA-256, nothing of the code that reads or writes lakes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Change = Callable[[Row], Row | None]
"""Returns the row as it is to be; None: the row is removed."""

_OWN_TIME = {
    "events": "recorded_at",
    "deliveries": "done_at",
    "receipts": "acked_at",
    "inbound": "recorded_at",
    "gaps": "recorded_at",
    "refusals": "last_at",
    "history": "recorded_at",
}
_MINUTE = 60_000_000


@dataclass(frozen=True)
class SegmentFile:
    """A segment of the landing: its Parquet file, and the manifest beside it."""

    data: Path

    @property
    def manifest(self) -> Path:
        return self.data.with_suffix(".json")

    @property
    def facts(self) -> dict[str, Any]:
        """Return the manifest."""
        found: dict[str, Any] = json.loads(self.manifest.read_text())
        return found

    @property
    def name(self) -> str:
        """Return the name of the segment as findings show it: its path in the lake, without the extension."""
        return "/".join(self.data.with_suffix("").parts[-5:])

    def rows(self) -> list[Row]:
        found: list[Row] = pq.read_table(self.data).to_pylist()
        return found

    def write(self, rows: list[Row]) -> None:
        """Replace the rows, and make the manifest fit."""
        assert rows, f"{self.name} would hold no row"
        pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(self.data)), self.data, compression="zstd")
        own = [_micros(row[_OWN_TIME[self.facts["book"]]]) for row in rows]
        slots = [_micros(row["event_at"]) // _MINUTE for row in rows if "event_at" in row]
        self.describe(
            rows=len(rows), times=[min(own), max(own)], slots=[min(slots), max(slots)] if slots else None, **self.sums()
        )

    def sums(self) -> dict[str, Any]:
        """Return the size and the digest of the Parquet file as its manifest has to state them."""
        data = self.data.read_bytes()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def describe(self, **facts: Any) -> None:
        """Change fields of the manifest."""
        self.manifest.write_text(json.dumps(self.facts | facts))

    def remove(self) -> None:
        self.data.unlink()
        self.manifest.unlink()


def _micros(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000 + time.microsecond


class LakeFiles:
    """A lake whose files are edited."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def segments(self, ledger: str, node: str) -> list[SegmentFile]:
        """Return the segments of a ledger, oldest first."""
        found = [SegmentFile(file) for file in self.root.glob(f"landing/{ledger}/dt=*/node={node}-*/*.parquet")]
        return sorted(found, key=lambda one: one.data.name)

    def change(self, ledger: str, node: str, where: Callable[[Row], bool], change: Change) -> None:
        """Change or remove the rows that meet a condition; there must be some."""
        met = 0
        for segment in self.segments(ledger, node):
            rows = segment.rows()
            chosen = [where(row) for row in rows]
            if any(chosen):
                met += sum(chosen)
                segment.write([*_changed(rows, chosen, change)])
        assert met, f"no row of {ledger} of {node} meets the condition"

    def remove(self, ledger: str, node: str, where: Callable[[Row], bool]) -> None:
        """Remove the rows that meet a condition; there must be some."""
        self.change(ledger, node, where, lambda row: None)

    def add(self, ledger: str, node: str, rows: Iterable[Row]) -> None:
        """Add rows to the segment that covers their numbers, after rows of the same number."""
        for row in rows:
            segment = next(
                one for one in self.segments(ledger, node) if one.facts["after"] < row["number"] <= one.facts["upto"]
            )
            segment.write(sorted([*segment.rows(), row], key=lambda one: one["number"]))

    def remove_node(self, node: str) -> None:
        """Remove all files of a node."""
        for folder in [*self.root.glob(f"landing/*/dt=*/node={node}-*"), *self.root.glob(f"nodes/{node}-*")]:
            shutil.rmtree(folder)

    def archive(self, parts: list[SegmentFile]) -> None:
        """Replace neighbouring segments of one ledger, oldest first, by one in the archive, and delete them."""
        first, last = parts[0], parts[-1]
        name = f"{first.data.stem.rpartition('-')[0]}-{last.data.stem.rpartition('-')[2]}.parquet"
        whole = SegmentFile(self.root / "archive" / first.data.relative_to(self.root / "landing").with_name(name))
        whole.data.parent.mkdir(parents=True)
        shutil.copyfile(first.data, whole.data)
        whole.manifest.write_text(
            json.dumps(first.facts | {"upto": last.facts["upto"], "replaces": [part.name for part in parts]})
        )
        whole.write([row for part in parts for row in part.rows()])
        for part in parts:
            part.remove()

    def states(self, node: str) -> list[Path]:
        """Return the files with the states of a node, one for each epoch."""
        files = self.root.glob(f"nodes/{node}-*/*.json")
        return sorted(file for file in files if not file.name.endswith("-expired.json"))

    def state(self, node: str) -> dict[str, Any]:
        """Return the only state of a node."""
        (file,) = self.states(node)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def set_state(self, node: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the only state of a node in place."""
        (file,) = self.states(node)
        state = json.loads(file.read_text())
        change(state)
        file.write_text(json.dumps(state))

    def take_back(self, node: str, earlier: Path) -> None:
        """Replace all files of a node by those of an earlier copy of the lake."""
        self.remove_node(node)
        for folder in [*earlier.glob(f"landing/*/dt=*/node={node}-*"), *earlier.glob(f"nodes/{node}-*")]:
            shutil.copytree(folder, self.root / folder.relative_to(earlier))


def _changed(rows: list[Row], chosen: list[bool], change: Change) -> Iterator[Row]:
    for row, met in zip(rows, chosen, strict=True):
        now = change(dict(row)) if met else row
        if now is not None:
            yield now
