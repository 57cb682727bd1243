"""A Spark session with everything set that must always be set, and nothing on the terminal that is not for people."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from eventd.audit.spark.extra import require
from eventd.audit.spark.java import java_home
from eventd.errors import EventdError, Invalid
from eventd.settings.model import export_variables, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
"""All cores of this machine, in one process."""

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]", "::1")
_MASTER: Final = re.compile(
    r"(local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://.+|k8s://.+)$", re.ASCII
)
_PATIENCE: Final = 5.0
"""Seconds to wait for a master to take a connection."""
_PATIENCE_AT_END: Final = 60.0
"""Seconds to wait for Java to end by itself."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.debug.maxToStringFields": "1000",  # a book has more columns than Spark likes to name, and it says so
    "spark.ui.enabled": "false",
    "spark.log.structuredLogging.enabled": "false",
}


_STREAMING: Final = "sql.execution.streaming.runtime"
_NOISY: Final = (
    *(f"{_STREAMING}.MicroBatchExecution", f"{_STREAMING}.ProcessingTimeExecutor"),
    *("scheduler.TaskSetManager", "executor.Executor"),
)
"""What tells of each query and task that ends with an error, and of each batch that takes longer than the interval."""


class SparkUnavailable(EventdError):
    """Spark could not be started, or its master does not answer."""

    code = "spark_unavailable"


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
) -> Iterator[SparkSession]:
    """A session on `master`, stopped at the end with the Java that was started for it.

    `memory` is what Spark may take on this machine, in its own notation (`2g`): the whole of it for `local[…]`, the
    driver's share on a cluster. `progress` draws bars on stderr. `scratch` is the folder for what does not fit into
    memory (default: the system's for temporary files). `packages` are zips of Python code for a cluster's executors.
    `conf` comes last and may set anything. Under `spark-submit`, which has decided all this, and in a notebook that has
    a session, that one is taken as it is, and left open.

    Raises MissingExtra, NoJava, Invalid for a master that is none, and SparkUnavailable.
    """
    sql = _pyspark()
    running = sql.SparkSession.getActiveSession()
    if running is not None:
        running.conf.set("spark.sql.session.timeZone", "UTC")
        yield running
        return
    submitted = "PYSPARK_GATEWAY_PORT" in java_environment()
    with contextlib.ExitStack() as stack:
        settings = {**_ALWAYS, "spark.app.name": app, "spark.ui.showConsoleProgress": str(progress).lower()}
        if not submitted:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eventd-spark-", dir=scratch)))
            settings |= _of_our_own(master or LOCAL, memory, place, packages)
        settings = _merged(settings, conf or {})
        stack.callback(_stop, keep_java=submitted)
        yield _start(sql.SparkSession, settings)


def _merged(settings: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """`conf` over `settings`; options of Java are added to ours."""
    added = {_JAVA_OPTIONS: f"{settings.get(_JAVA_OPTIONS, '')} {conf[_JAVA_OPTIONS]}"} if _JAVA_OPTIONS in conf else {}
    return {**settings, **conf, **added}


def _pyspark() -> Any:
    require()
    return import_module("pyspark.sql")


def _of_our_own(master: str, memory: str, place: Path, packages: Sequence[Path]) -> dict[str, str]:
    """What must be known before Java starts. Sets the variables that only an environment can carry."""
    _check_master(master)
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
    if _on_this_machine(master):
        export_variables({"SPARK_LOCAL_IP": "127.0.0.1"})
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _on_this_machine(master: str) -> bool:
    if master.startswith("local"):
        return True
    return all(host in _LOOPBACK for host, _ in _addresses(master)) and master.startswith("spark://")


def _addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each of the masters in `spark://host:port,host:port`. Raises Invalid."""
    try:
        parts = [urlsplit(f"spark://{part}") for part in master.removeprefix("spark://").split(",")]
        return [(part.hostname or "", part.port or 7077) for part in parts]
    except ValueError:
        raise _no_master(master) from None


def _no_master(master: str) -> Invalid:
    return Invalid(
        f"{master} is no Spark master", hint="local[*], local-cluster[2,1,1024], spark://host:7077, yarn or k8s://…"
    )


def _check_master(master: str) -> None:
    """Spark itself would try for a minute and then say something about a context that has been stopped."""
    if _MASTER.match(master) is None:
        raise _no_master(master)
    if not master.startswith("spark://"):
        return
    refused = []
    for address in _addresses(master):
        try:
            socket.create_connection(address, timeout=_PATIENCE).close()
            return
        except OSError as error:
            refused.append(f"{address[0]}:{address[1]}: {error.strerror or error}")
    raise SparkUnavailable(
        f"no Spark master answers at {master} ({'; '.join(refused)})",
        hint="start it, or leave --master out to work on this machine alone",
    )


def _start(kind: type[SparkSession], settings: Mapping[str, str]) -> SparkSession:
    builder = kind.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # Java's errors have no common base, and some are Python's own
        raise SparkUnavailable(f"Spark did not start: {last_cause(str(error))}") from None


@contextlib.contextmanager
def quiet(spark: SparkSession) -> Iterator[None]:
    """Silence Java and its bridge to Python: the cause of a failed query is reported by this program, in one line."""
    bridge = [logging.getLogger(name) for name in ("py4j.clientserver", "py4j.java_gateway")]
    before = [one.level for one in bridge]
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in _NOISY:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)
    for one in bridge:
        one.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for one, level in zip(bridge, before, strict=True):
            one.setLevel(level)


def last_cause(text: str) -> str:
    """The one line of a Java error that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    found = (causes or [line for line in lines if ": " in line] or lines or ["no reason was given"])[-1]
    return re.sub(r"^(: )?([a-z]\w*\.)+\w+: ", "", found)[:300]


def _stop(*, keep_java: bool) -> None:
    """Stop Spark, and the Java below it, which would otherwise stay until this program ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, session = SparkContext._gateway, SparkSession.getActiveSession()
    with contextlib.suppress(Exception):  # it may be gone already; what we did is done
        if session is not None:
            session.stop()
    process = getattr(gateway, "proc", None)
    if keep_java or gateway is None or process is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process.stdin.close()  # Java ends when its standard input does
    try:
        process.wait(timeout=_PATIENCE_AT_END)
    except TimeoutExpired:
        process.kill()
        process.wait()
