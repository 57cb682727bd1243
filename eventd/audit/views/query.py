"""Runs one SQL query on the views of a lake, and returns its rows as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from eventd.audit.spark.session import SECRETS, exit_status, last_cause, open_session, quiet
from eventd.audit.views.lake_views import LakeViews, locate, register_views
from eventd.errors import EventdError, Invalid, LakeUnavailable
from eventd.lake.address import mask_addresses, secrets_of, without_secrets
from eventd.lake.schema import Ledger
from eventd.lake.storage import open_lake
from eventd.text.quoting import quoted
from federation.event import format_time, micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_AT_ONCE: Final = 1_000
_CONF: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr",
}
"""Few parts for a shuffle: what an analyst's query leaves after grouping is small. Java ends when it has no memory
left: a thread of Spark that ends alone prints its stack, and this process would wait for its result without end."""


_NO_MEMORY: Final = 3
"""The status with which Java ends by that option."""
_KILLED: Final = -9
"""The status of a process that was ended by SIGKILL."""


class QueryResult(NamedTuple):
    """The result of a query: the names of its columns, its rows, to be read once, and the views that it could read."""

    names: Sequence[str]
    rows: Iterator[Sequence[Any]]
    views: LakeViews


def query_lake(
    lake: str, sql: str, *, limit: int, master: str = "", memory: str = "2g", progress: bool = False
) -> QueryResult:
    """Run a query on the views of a lake, on a Spark session that is opened for it.

    Values are those of JSON: times are RFC 3339 in UTC, binary values hexadecimal, decimals texts, and a number that is
    not finite is None. Addresses with secrets of the lake's address, as the names of files are, have `***` for them;
    no other value is changed.

    Raises like `open_session` and `register_views`, Invalid for a query that Spark refuses, that has more than `limit`
    rows (at most 2³¹ - 2) or a time that Python does not have, and EventdError with a message of one line for a
    failure inside of Spark.
    """
    if not (location := locate(lake)).by_spark:
        open_lake(location.open())  # report errors before Spark starts
    with (
        open_session(master or None, app="routerctl audit sql", memory=memory, progress=progress, conf=_CONF) as spark,
        _quiet(spark),
    ):
        own, views = _make_views(spark, lake, location.address)
        table = _collect(own, sql, limit, lake)
    if table.num_rows > limit:
        raise Invalid(f"the result has more than {limit:,} rows", hint="group or filter the rows, or raise --limit")
    _check_times(table)
    return QueryResult(table.column_names, _rows(table, secrets_of(lake)), views)


@contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Suppress the log output about failed queries like `quiet`. Raises EventdError if Java has ended before."""
    with ExitStack() as stack:
        try:
            stack.enter_context(quiet(spark))
        except Exception as error:
            if _is_end_of_java(error):
                raise _java_has_ended() from None
            raise
        yield


def _make_views(spark: SparkSession, lake: str, address: str) -> tuple[SparkSession, LakeViews]:
    """Return a new session with the views of the lake at `address`.

    Raises like `register_views`, LakeUnavailable if Spark cannot read the lake, and EventdError if Java has ended.
    """
    try:
        own = spark.newSession()
        own.conf.set("spark.sql.session.timeZone", "UTC")
        own.conf.set("spark.sql.redaction.string.regex", SECRETS)
        return own, register_views(own, lake)
    except EventdError:
        raise
    except Exception as error:
        if _is_end_of_java(error):
            raise _java_has_ended() from None
        # a segment was deleted since it was listed, or the store fails
        raise LakeUnavailable(
            f"Spark cannot read the lake at {address}: {_first_line(error, lake)}",
            hint="run the query again; if this persists, `routerctl lake check` lists the problems of the lake",
        ) from None


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
        if _is_end_of_java(error):
            raise _java_has_ended() from None
        if isinstance(error, OSError):  # of this machine, such as too many open files
            raise EventdError(f"the query failed: {_first_line(error, lake)}") from None
        raise EventdError(f"the query failed in Spark: {last_cause(str(error), lake)}") from None


def _is_end_of_java(error: Exception) -> bool:
    """Return whether an error is that of a connection to Java which has ended, and not one that Java reports."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

    if isinstance(error, (Py4JNetworkError, EOFError, ConnectionError)):
        return True
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)  # an answer without an error in it


def _java_has_ended() -> EventdError:
    match exit_status():
        case None:
            how, hint = "Java does not answer any more", "run the query again"
        case status if status == _NO_MEMORY:
            how, hint = "Java had too little memory and has ended", "let the query return less, or raise --memory"
        case status if status == _KILLED:
            how, hint = "Java was killed", "the system does so without memory: close other programs, or lower --memory"
        case status:
            how, hint = f"Java has ended with status {status}", "run the query again"
    return EventdError(f"the query failed in Spark: {how}", hint=hint)


def _check_times(table: pa.Table) -> None:
    """Check that Python has all times of a result, before a part of it is printed. Raises Invalid."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not _has_times(column.type):
            continue
        try:
            for batch in pa.table({"": column}).to_batches(max_chunksize=_ROWS_AT_ONCE):
                batch.column(0).to_pylist()
        except (OverflowError, ValueError):
            raise Invalid(
                f"a time in the column {quoted(name)} lies outside of the years 1 to 9999",
                hint="select the column as text, with CAST(… AS STRING)",
            ) from None


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(_has_times(kind.field(at).type) for at in range(kind.num_fields))


def _rows(table: pa.Table, secrets: Sequence[str]) -> Iterator[Sequence[Any]]:
    """Yield the rows as plain values, one batch after the other, so that few of them are in memory twice."""
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        columns = [[_plain(value, secrets) for value in column.to_pylist()] for column in batch.columns]
        yield from zip(*columns, strict=True)


def _first_line(error: Exception, lake: str) -> str:
    """Return the first line of Spark's message, without the plan that follows it, and without secrets."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return without_secrets(line.rstrip(";"), lake)


def _plain(value: Any, secrets: Sequence[str]) -> Any:
    """Return a value as one of JSON, without secrets in the addresses that it contains."""
    match value:
        case str():
            return mask_addresses(value, secrets)
        case dict():
            return {mask_addresses(str(name), secrets): _plain(inner, secrets) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, secrets) for inner in value]
    for kind, convert in _PLAIN.items():
        if isinstance(value, kind):
            return convert(value)
    return value if value is None or isinstance(value, int) else str(value)  # such as an interval


def _moment(value: datetime) -> str:
    return format_time(micros(value)) if value.tzinfo else value.isoformat()


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    datetime: _moment,
    date: date.isoformat,
    bytes: bytes.hex,
    Decimal: str,
    float: lambda value: value if math.isfinite(value) else None,
}
"""How values that are not JSON are shown, by their type; a datetime is a date, too, so it comes first."""
