"""SQL views over the ledgers of a lake, which Spark reads as plain Parquet, and queries on them.

`register_views(spark, lake)` makes the views in any session. What they hold: `docs/reference/spark-views.md`.

May import: audit.source, audit.spark, lake, text.
"""

from __future__ import annotations

from eventd.audit.views.lake_views import LakeViews, register_views

__all__ = ["LakeViews", "register_views"]
