"""Opens Spark sessions with the settings that the audit needs, and without Spark's log output on the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

from eventd.audit.spark.class_archive import NoClassArchive, class_archive
from eventd.audit.spark.extra import CONNECTING, require
from eventd.audit.spark.java import java_home
from eventd.audit.spark.masters import SparkUnavailable, check_master, is_local, is_server
from eventd.lake.address import without_secrets
from eventd.settings.environment import export_variables, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
"""The Spark master that uses all cores of this machine, in one process."""

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_EXIT_TIMEOUT: Final = 60.0
"""Seconds to wait for Java to exit."""
_RECORD_TIMEOUT: Final = 600.0
"""Seconds to wait for Java to exit if it stores its classes: it takes a quarter of a minute of processor time."""

SECRETS: Final = (
    r"(?<=://)(?:[^/\s:@]*:\S*|[^/\s]*:[^/\s]*)(?=@)|(?<!(?:abfss?|wasbs?)://)(?<=://)[^/\s]*(?=@)"
    r"|(?<=[?#])(?<=://[^\s?#]{1,1000}[?#])\S+|(?<=\?)\S+=\S+"
)
"""Matches, for Java, what `eventd.lake.address.shown` masks, and a query with `=` also after an address without `//`.

Spark masks it in plans, as EXPLAIN shows them, and in its log: the file `LOGGING` has the same pattern.
"""
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",  # for the option pushFilters of the source
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.debug.maxToStringFields": "1000",  # Spark warns if a schema has more columns than this
    "spark.ui.enabled": "false",
    "spark.log.structuredLogging.enabled": "false",
    "spark.redaction.string.regex": SECRETS,
}


_STREAMING: Final = "sql.execution.streaming.runtime"
_NOISY: Final = (
    *(f"{_STREAMING}.MicroBatchExecution", f"{_STREAMING}.ProcessingTimeExecutor"),
    *("scheduler.TaskSetManager", "executor.Executor"),
)
"""Loggers that report each failed query and task, and each batch that takes longer than the interval."""


@contextlib.contextmanager
def open_session(
    master: str | None = LOCAL,
    *,
    app: str,
    memory: str = "2g",
    progress: bool = False,
    scratch: Path | None = None,
    packages: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
    record: bool = False,
) -> Iterator[SparkSession]:
    """Open a session on `master`; at the end, it is stopped together with the Java that was started for it.

    `memory` limits Spark's memory on this machine, in its own notation (`2g`): all of it for `local[…]`, the driver's
    part on a cluster. `progress` shows progress bars on stderr. `scratch` is the folder for data that does not fit into
    memory (default: the system's folder for temporary files). `packages` are zips of Python code for a cluster's
    executors. `conf` is applied last and may set anything. Under `spark-submit`, which chooses them itself,
    `master`, `memory`, `scratch` and `packages` have no effect, and Java is left running. If this process
    has an active session, as in a notebook, that one is used, with the time zone set to UTC and no other argument
    applied, and left open. A `master` of `sc://HOST:PORT` is a server of Spark Connect, to which only `master` applies.
    With `record`, Java stores the classes that it has loaded when it ends, and later sessions start faster.

    Raises MissingExtra, JavaNotFound, Invalid for an invalid master, and SparkUnavailable.
    """
    sql = _pyspark()
    running = sql.SparkSession.getActiveSession()
    if running is not None:
        running.conf.set("spark.sql.session.timeZone", "UTC")
        yield running
        return
    if master is not None and is_server(master):
        with _connected(sql, master) as remote:
            yield remote
        return
    submitted = _is_submitted()
    with contextlib.ExitStack() as stack:
        settings = {**_ALWAYS, "spark.app.name": app, "spark.ui.showConsoleProgress": str(progress).lower()}
        if not submitted:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eventd-spark-", dir=scratch)))
            settings |= _launch_settings(master or LOCAL, memory, place, packages)
        settings = _merged(settings, conf or {})
        if not submitted and "ArchiveFile" not in settings[_JAVA_OPTIONS]:
            with contextlib.suppress(NoClassArchive):
                classes = class_archive(java_home(), place)
                settings[_JAVA_OPTIONS] += f" {classes.options(record=record)}"
                stack.callback(classes.keep)  # when Java has ended
        stack.callback(_stop, keep_java=submitted, patience=_RECORD_TIMEOUT if record else _EXIT_TIMEOUT)
        yield _start(sql.SparkSession, settings)


@contextlib.contextmanager
def _connected(sql: Any, address: str) -> Iterator[SparkSession]:
    """Open a session at a server of Spark Connect, and close it at the end; the server keeps running."""
    require(CONNECTING)
    check_master(address)
    try:
        session = sql.SparkSession.builder.remote(address).getOrCreate()
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except Exception as error:  # errors of gRPC have no base class of their own
        raise SparkUnavailable(
            f"the server of Spark Connect opens no session: {last_cause(str(error), address)}",
            hint="see its log; --master is sc://HOST:PORT, and after it /;token=… where the server needs one",
        ) from None
    try:
        yield session
    finally:
        with contextlib.suppress(Exception):
            session.stop()


def _merged(settings: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return `settings` overridden by `conf`, whose Java options are added to those of `settings`."""
    added = {_JAVA_OPTIONS: f"{settings.get(_JAVA_OPTIONS, '')} {conf[_JAVA_OPTIONS]}"} if _JAVA_OPTIONS in conf else {}
    return {**settings, **conf, **added}


def _pyspark() -> Any:
    require()
    return import_module("pyspark.sql")


def _launch_settings(master: str, memory: str, place: Path, packages: Sequence[Path]) -> dict[str, str]:
    """Check the master, and return the settings needed before Java starts.

    Exports the variables that Spark reads only from the environment.
    """
    check_master(master)
    export_variables(
        {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    )
    settings = {
        "spark.master": master,
        "spark.driver.memory": memory,
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.submit.pyFiles": ",".join(map(str, packages)),
    }
    if is_local(master):
        export_variables({"SPARK_LOCAL_IP": "127.0.0.1"})
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _start(kind: type[SparkSession], settings: Mapping[str, str]) -> SparkSession:
    builder = kind.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # Java's errors have no common base class, and some are Python's own
        reason = last_cause(str(error), settings.get("spark.master", ""))
        raise SparkUnavailable(f"Spark did not start: {reason}") from None


def own_session(spark: SparkSession) -> SparkSession:
    """Return a new session on the same Spark, with settings that affect no other session. Spark never frees it."""
    session = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.redaction.string.regex": SECRETS,
        # Sums are computed outside of the JVM, which only moves rows; compiling its plans would take longer than it
        # saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        # Where Spark reads files, each is a row: small ones are put together in a task, and one at a time is in memory.
        "spark.sql.files.maxPartitionBytes": str(48 << 20),
        "spark.sql.files.openCostInBytes": str(64 << 10),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def expected_master(given: str) -> str:
    """Return the master that a session will have, as far as it is known: `given`, or under `spark-submit` a name that
    is not local.

    Under `spark-submit`, Spark itself chooses it.
    """
    return given or ("spark-submit" if _is_submitted() else "")


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose JVM is that of a server."""
    return getattr(spark, "sparkContext", None) is None


def master_of(spark: SparkSession) -> str:
    """Return the master of a running Spark, such as `local[*]`."""
    return spark.conf.get("spark.master") or ""


def cores_of(spark: SparkSession) -> int:
    """Return the number of cores on which a running Spark runs tasks."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id

    # Spark makes a range of as many partitions.
    return spark.range(0, 1 << 16).select(spark_partition_id().alias("part")).distinct().count()


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in java_environment()


@contextlib.contextmanager
def quiet(spark: SparkSession) -> Iterator[None]:
    """Suppress the log output about failed queries; we report these in one line.

    The logs of the bridge from Python to Java, and of refused queries, are restored at the end of the block, the
    loggers of Java stay off.
    """
    from pyspark.logger import PySparkLogger

    if not is_remote(spark):  # the log of Spark Connect is on its server
        log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        for name in _NOISY:
            log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)
    # The last one is of Spark's own kind: Spark cannot use another.
    with _silent(*_bridge_loggers(), PySparkLogger.getLogger("SQLQueryContextLogger")):
        yield


def _bridge_loggers() -> list[logging.Logger]:
    """Return the loggers of the bridge from Python to Java, which log each connection that breaks."""
    return [logging.getLogger(name) for name in ("py4j.clientserver", "py4j.java_gateway")]


@contextlib.contextmanager
def _silent(*loggers: logging.Logger) -> Iterator[None]:
    """Switch off loggers, and what the bridge logs past its own: a broken connection, with a traceback, as the root."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    root, before = logging.getLogger(), [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL + 1)
    root.addFilter(is_of_others)
    try:
        yield
    finally:
        root.removeFilter(is_of_others)
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)


def exit_status() -> int | None:
    """Return the status with which Java has ended, negative for a signal; None if it runs or was not started here."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(timeout=_EXIT_TIMEOUT))  # its connection may close before it has ended
    except TimeoutExpired:
        return None


def silence_log(spark: SparkSession) -> None:
    """Switch off the log of a Spark that is about to stop; with Spark Connect, the log is the server's."""
    if not is_remote(spark):
        spark.sparkContext.setLogLevel("OFF")


def last_cause(text: str, *urls: str) -> str:
    """Return the message of the last cause in a Java error, without its class, cut to 300 characters.

    `urls`: the addresses that it may name, whose secrets are left out.
    """
    text = without_secrets(text, *urls)  # before it is cut, because a part of a secret is not found
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    found = (causes or [line for line in lines if ": " in line] or lines or ["no reason was given"])[-1]
    return re.sub(r"^(: )?([a-z]\w*\.)+\w+: ", "", found)[:300]


def _stop(*, keep_java: bool, patience: float) -> None:
    """Stop Spark and, unless `keep_java`, its Java process, which would otherwise run until this program exits.

    Java is killed if it does not exit within `patience` seconds.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    # The session, or Java, may have ended already, and its work is done.
    with _silent(*_bridge_loggers()), contextlib.suppress(Exception):
        if (session := SparkSession.getActiveSession()) is not None:
            session.stop()
    process = getattr(gateway, "proc", None)
    if keep_java or gateway is None or process is None:
        return
    with _silent(*_bridge_loggers()), contextlib.suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process.stdin.close()  # Java exits when its standard input is closed
    try:
        process.wait(timeout=patience)
    except TimeoutExpired:
        process.kill()
        process.wait()
