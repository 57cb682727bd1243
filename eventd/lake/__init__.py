"""The lake: what nodes did, as Parquet files that every program can read. `docs/reference/lake.md` is its contract.

Names and manifests need no optional package; whatever opens a file or a store needs the extra `lake`.
"""

from __future__ import annotations
