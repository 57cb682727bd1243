"""Checks the ranges of manifests in a lake that only Spark reads, which has no way to read the end of a file alone.

Spark reads two columns of each file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from eventd.audit.spark.locations import Location
from eventd.audit.spark.session import last_cause
from eventd.errors import LakeUnavailable
from eventd.lake.schema import OWN_TIME, Ledger
from eventd.lake.segment_checks import ranges_fault
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_range_faults(spark: SparkSession, lake: Location, segments: Sequence[Segment]) -> dict[str, str]:
    """Return, by name, why segments of events and deliveries differ from the ranges of their manifests.

    Raises LakeUnavailable if Spark cannot reach the files, or one was deleted meanwhile.
    """
    by_book: defaultdict[Ledger, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_book[segment.place.book].append(segment)
    faults = {}
    for book, some in by_book.items():
        bounds = {path: ranges for path, *ranges in _ranges(spark, lake, book, some)}
        for place, manifest in some:
            fault = ranges_fault(manifest, *bounds.get(place.data, ()))
            if fault is not None:
                faults[place.name] = fault
    return faults


def _ranges(spark: SparkSession, lake: Location, book: Ledger, segments: Sequence[Segment]) -> Iterator[Any]:
    """Yield the path of each file with rows, and the first and last time of its rows and of their events (µs)."""
    names = OWN_TIME[book], "event_at"
    ends = [f"unix_micros({end}({name})) {name}_{end}" for name in names for end in ("min", "max")]
    reader = spark.read.schema(", ".join(f"{name} timestamp" for name in names)).option("recursiveFileLookup", "true")
    try:
        frame = reader.parquet(*(lake.for_spark(one.place.data) for one in segments))
        rows = frame.selectExpr("_metadata.file_path file", *names).groupBy("file").agg(*map(_column, ends)).collect()
    except Exception as error:  # Spark's and Java's exceptions have no common base class
        raise LakeUnavailable(
            f"Spark cannot read the files at {lake.address}: {last_cause(str(error), lake.url)}"
        ) from None
    for row in rows:
        path = "/".join(unquote(row[0]).split("/")[-5:])
        yield path, (row[1], row[2]), (row[3], row[4])


def _column(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)
