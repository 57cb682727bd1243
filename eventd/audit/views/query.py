"""Runs one SQL query on the views of a lake, and returns its rows as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventd.audit.spark.session import SECRETS, last_cause, open_session, quiet
from eventd.audit.views.lake_views import LakeViews, locate, register_views
from eventd.errors import EventdError, Invalid, LakeUnavailable
from eventd.lake.address import mask, secrets_of, without_secrets
from eventd.lake.schema import Ledger
from eventd.lake.storage import open_lake
from federation.event import format_time, micros

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_ROWS: Final = 100_000
"""Default maximum number of rows of a result, which is in memory as a whole."""
_ROWS_AT_ONCE: Final = 1_000
_CONF: Final = {"spark.sql.shuffle.partitions": "8"}
"""Few parts for a shuffle: what an analyst's query leaves after grouping is small."""


class QueryResult(NamedTuple):
    """The result of a query: the names of its columns, its rows, to be read once, and the views that it could read."""

    names: Sequence[str]
    rows: Iterator[Sequence[Any]]
    views: LakeViews


def query_lake(
    lake: str, sql: str, *, limit: int = MOST_ROWS, master: str = "", memory: str = "2g", progress: bool = False
) -> QueryResult:
    """Run a query on the views of a lake, on a Spark session that is opened for it.

    Values are those of JSON: times are RFC 3339 in UTC, binary values hexadecimal, decimals texts, and a number that is
    not finite is None. Secrets of the lake's address, which the names of files contain, are `***`.

    Raises like `open_session` and `register_views`, Invalid for a query that Spark refuses or that has more than
    `limit` rows, and EventdError with a message of one line for a failure inside of Spark.
    """
    if not (location := locate(lake)).by_spark:
        open_lake(location.open())  # report errors before Spark starts
    with (
        open_session(master or None, app="routerctl audit sql", memory=memory, progress=progress, conf=_CONF) as spark,
        quiet(spark),
    ):
        own = spark.newSession()
        own.conf.set("spark.sql.session.timeZone", "UTC")
        own.conf.set("spark.sql.redaction.string.regex", SECRETS)
        try:
            views = register_views(own, lake)
        except EventdError:
            raise
        except Exception as error:  # a segment was deleted since it was listed, or the store fails
            raise LakeUnavailable(
                f"Spark cannot read the lake at {location.address}: {_first_line(error, lake)}",
                hint="run the query again; if this persists, `routerctl lake check` lists the problems of the lake",
            ) from None
        table = _collect(own, sql, limit, lake)
    if table.num_rows > limit:
        raise Invalid(f"the result has more than {limit:,} rows", hint="group or filter the rows, or raise --limit")
    return QueryResult(table.column_names, _rows(table, secrets_of(lake)), views)


def _collect(spark: SparkSession, sql: str, limit: int, lake: str) -> pa.Table:
    """Return the rows of a query, up to one more than `limit`. Raises Invalid and EventdError like `query_lake`."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        return spark.sql(sql).limit(limit + 1).toArrow()
    except AnalysisException as error:
        raise Invalid(
            f"Spark refuses the query: {_first_line(error, lake)}", hint=f"the views are {', '.join(Ledger)}"
        ) from None
    except PySparkException as error:
        raise EventdError(f"the query failed in Spark: {_first_line(error, lake)}") from None
    except Exception as error:  # Java's errors have no common base class
        raise EventdError(f"the query failed in Spark: {last_cause(str(error), lake)}") from None


def _rows(table: pa.Table, secrets: Sequence[str]) -> Iterator[Sequence[Any]]:
    """Yield the rows as plain values, one batch after the other, so that few of them are in memory twice."""

    def shown_value(value: Any) -> Any:
        plain = _plain(value)
        return mask(plain, secrets) if secrets and isinstance(plain, str) else plain

    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        columns = [[shown_value(value) for value in column.to_pylist()] for column in batch.columns]
        yield from zip(*columns, strict=True)


def _first_line(error: Exception, lake: str) -> str:
    """Return the first line of Spark's message, without the plan that follows it, and without secrets."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return without_secrets(line.rstrip(";"), lake)


def _plain(value: Any) -> Any:
    for kind, convert in _PLAIN.items():
        if isinstance(value, kind):
            return convert(value)
    return value


def _moment(value: datetime) -> str:
    return format_time(micros(value)) if value.tzinfo else value.isoformat()


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    datetime: _moment,
    date: date.isoformat,
    bytes: bytes.hex,
    Decimal: str,
    float: lambda value: value if math.isfinite(value) else None,
    dict: lambda value: {str(name): _plain(inner) for name, inner in value.items()},
    list: lambda value: [_plain(inner) for inner in value],
    tuple: lambda value: [_plain(inner) for inner in value],
}
"""How values that are not JSON are shown, by their type; a datetime is a date, too, so it comes first."""
