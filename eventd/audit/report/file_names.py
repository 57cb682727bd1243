"""The names of the files of a report, in the output folder of an audit."""

from __future__ import annotations

from typing import Final

REPORT: Final = "report.json"
PAGE: Final = "report.html"
INVENTORY: Final = "lake.sha256"
"""The inventory of the lake, as the audit read it."""
SIGNATURE: Final = "report.sig"
TABLES: Final = "tables"
FINDINGS: Final = f"{TABLES}/findings/part-0.parquet"
"""The table with all ids of all findings."""
