"""Registers a view for each ledger of a lake, over the Parquet files of exactly the segments that count.

The folder of a segment names its node and its day. Spark gets both as partition columns, so it opens only the files of
the nodes and days that a query selects. No digest is checked: the audit and the format "eventd" do that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions, types

from eventd.audit.source.spark_columns import spark_schema
from eventd.audit.spark.locations import Location
from eventd.errors import Invalid
from eventd.lake.address import is_address
from eventd.lake.layout import ARCHIVE, LANDING, SegmentName
from eventd.lake.reader import Trouble, TroubleKind, survey
from eventd.lake.schema import Ledger

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DAY: Final = "dt"
"""The column with the UTC day under which a segment is filed: that of its first row, as in the path."""
_SLUG_END: Final = 9
"""Characters at the end of a folder name that are not part of the node's name: a dash and 8 hexadecimal digits."""
_HEX: Final = "0123456789abcdef"
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery"
"""How Spark looks up files: from `threshold` files on in a job of up to `parallelism` tasks, by default one a file."""
_LISTING_TASKS: Final = 100


class LakeViews(NamedTuple):
    """The views over a lake: their names, the number of segments, and the `troubles`: reasons why rows are missing in
    the views.

    A segment is missing or is not what its manifest says, or it is unknown how far the ledgers of a node reach.
    """

    names: Sequence[str]
    segments: int
    troubles: Sequence[Trouble]


def register_views(spark: SparkSession, lake: str | PathLike[str]) -> LakeViews:
    """Create, or replace, a temporary view for each ledger of a lake, named like the ledger.

    The views hold the rows that the lake has now: call this again to see later ones. `lake` is a path or an address. An
    address is read through Spark's own file systems (`s3://` as `s3a://`), with the credentials that Spark has.

    Raises NotFound if there is no lake, LakeUnusable for one that this program or Spark cannot read, Invalid for an
    address with characters that Spark takes for a pattern, or for a value that is neither, and LakeUnavailable.
    """
    location = locate(_text(lake))
    surveyed = survey(location.open(spark))
    nodes = surveyed.node_names
    places: defaultdict[Ledger, list[SegmentName]] = defaultdict(list)
    for segment in surveyed.segments:
        places[segment.place.book].append(segment.place)
    with _fast_listing(spark, location):
        for book in Ledger:
            _read(spark, location, book, places[book], nodes).createOrReplaceTempView(book.value)
    troubles = [trouble for trouble in surveyed.troubles if trouble.kind is TroubleKind.CORRUPT]
    return LakeViews([book.value for book in Ledger], len(surveyed.segments), troubles)


def locate(lake: str) -> Location:
    """Return the location of a lake whose rows Spark reads: Spark lists an address, too, and reads its manifests."""
    return Location(lake, by_spark=is_address(lake))


def _text(lake: str | PathLike[str]) -> str:
    try:
        return str(fspath(lake))
    except TypeError:
        raise Invalid(
            f"the lake is {lake!r}, which is not a path or an address",
            hint='write for example register_views(spark, "/srv/lake")',
        ) from None


@contextmanager
def _fast_listing(spark: SparkSession, location: Location) -> Iterator[None]:
    """Have Spark look up the files of segments without a task for each, which takes longer than reading them.

    Those of a local lake it looks up from here; those of an object store in `_LISTING_TASKS` tasks.
    """
    name, value = ("parallelism", _LISTING_TASKS) if location.by_spark else ("threshold", 1 << 30)
    before = spark.conf.get(f"{_LISTING}.{name}")
    spark.conf.set(f"{_LISTING}.{name}", str(value))
    try:
        yield
    finally:
        spark.conf.set(f"{_LISTING}.{name}", str(before))


def _read(
    spark: SparkSession, location: Location, book: Ledger, places: Sequence[SegmentName], nodes: Mapping[str, str]
) -> DataFrame:
    """Return the rows of these segments, with the columns of the ledger and the column `DAY`."""
    schema = types.StructType([*spark_schema(book), types.StructField(DAY, types.DateType())])
    frames = []
    for tree in (ARCHIVE, LANDING):
        files = [_address(location, place.data) for place in places if place.tree == tree]
        if files:
            # Spark takes the value of a partition column from the path, also if the file has a column of this name.
            base = _address(location, f"{tree}/{book.value}")
            reader = spark.read.schema(schema).option("basePath", base).option("__globPaths__", "false")
            frames.append(reader.parquet(*files))
    if not frames:
        return spark.createDataFrame([], schema)
    rows = reduce(lambda one, other: one.unionAll(other), frames)
    return rows.withColumn("node", _node_name(nodes)).select(*schema.names)


def _node_name(nodes: Mapping[str, str]) -> Column:
    """Return the name of a row's node, from the name of its folder in the column `node`.

    It depends on that partition column alone, so Spark evaluates a condition on it once for each folder, before it
    opens files. It is computed again for each row that shows it, so it has to be cheap: most folders begin with the
    name. The others are looked up, divided by their last digit, because Spark searches a map from its start.
    """
    folder = functions.col("node")
    own = functions.expr(f"left(node, length(node) - {_SLUG_END})")
    named: dict[str, list[str]] = {digit: ["", ""] for digit in _HEX}
    others = {slug: name for slug, name in nodes.items() if slug[:-_SLUG_END] != name}
    for slug, name in sorted(others.items()):
        named[slug[-1]] += [slug, name]
    if not others:
        return own
    maps = functions.array(*(functions.create_map(*map(functions.lit, named[digit])) for digit in _HEX))
    digit = functions.instr(functions.lit(_HEX), functions.right(folder, functions.lit(1)))
    return functions.coalesce(functions.element_at(functions.element_at(maps, digit), folder), own)


def _address(location: Location, path: str) -> str:
    """Return the address of a file or folder of a lake for Spark; that of a path may have any characters."""
    return location.for_spark(path) if location.by_spark else f"file://{location.open().locate(path)}"
