"""Runs one SQL query on the views of a lake, and returns its rows as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from eventd.audit.spark.session import last_cause, open_session, quiet
from eventd.audit.views.lake_views import LakeViews, locate, register_views
from eventd.errors import EventdError, Invalid
from eventd.lake.schema import Ledger
from eventd.lake.storage import open_lake
from federation.event import format_time, micros

_CONF: Final = {"spark.sql.shuffle.partitions": "8"}
"""Few parts for a shuffle: what an analyst's query leaves after grouping is small."""


class QueryResult(NamedTuple):
    """The result of a query: the names of its columns, its rows, and the views that it could read."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    views: LakeViews


def query_lake(lake: str, sql: str, *, master: str = "", memory: str = "2g", progress: bool = False) -> QueryResult:
    """Run a query on the views of a lake, on a Spark session that is opened for it.

    Values are those of JSON: times are RFC 3339 in UTC, binary values hexadecimal, decimals texts, and a number that is
    not finite is None.

    Raises like `open_session` and `register_views`, Invalid for a query that Spark refuses, and EventdError with a
    message of one line for a failure inside of Spark.
    """
    from pyspark.errors import AnalysisException, PySparkException

    if not (location := locate(lake)).by_spark:
        open_lake(location.open())  # report errors before Spark starts
    with (
        open_session(master or None, app="routerctl audit sql", memory=memory, progress=progress, conf=_CONF) as spark,
        quiet(spark),
    ):
        own = spark.newSession()
        own.conf.set("spark.sql.session.timeZone", "UTC")
        views = register_views(own, lake)
        try:
            table = own.sql(sql).toArrow()
        except AnalysisException as error:
            raise Invalid(
                f"Spark refuses the query: {_first_line(error)}", hint=f"the views are {', '.join(Ledger)}"
            ) from None
        except PySparkException as error:
            raise EventdError(f"the query failed in Spark: {_first_line(error)}") from None
        except Exception as error:  # Java's errors have no common base class
            raise EventdError(f"the query failed in Spark: {last_cause(str(error))}") from None
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return QueryResult(table.column_names, list(zip(*columns, strict=True)), views)


def _first_line(error: Exception) -> str:
    """Return the first line of Spark's message, without the plan that follows it."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(";")


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
