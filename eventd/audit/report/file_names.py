"""The names of files in the output folder of an audit: those of its report, and that of its history."""

from __future__ import annotations

from typing import Final

REPORT: Final = "report.json"
PAGE: Final = "report.html"
INVENTORY: Final = "lake.sha256"
"""The inventory of the lake, as the audit read it."""
SIGNATURE: Final = "report.sig"
TABLES: Final = "tables"
HISTORY: Final = "state/history.json"
"""What audits have seen of the lake, see `eventd.audit.engine.history`."""
FINDINGS: Final = f"{TABLES}/findings/part-0.parquet"
"""The table with all ids that findings name; events that are only counted are in none."""
LOCK: Final = ".lock"
DELTA: Final = "delta"
"""The folder of Delta tables."""
UNSIGNED: Final = frozenset({DELTA, "checkpoint", "final", "state"})
"""The folders that an audit keeps in its output besides the report; a signature covers neither them nor `LOCK`."""
