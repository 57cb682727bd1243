"""One Spark session for a test process: it takes seconds to start, and all tests of the process share it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "1g"
CLASSES = Path(sys.prefix, "spark-classes.jsa")
"""Spark's classes as the Java of this machine has loaded them: `make venv-audit` writes them, once."""
QUIET = "-Xlog:disable"
"""A Java that the classes do not fit, another version for example, ignores them without a warning on stdout."""
STARTS_FAST = " ".join(
    [
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        *([f"-XX:SharedArchiveFile={CLASSES} -Xshare:auto {QUIET}"] if CLASSES.exists() else ["-Xshare:auto"]),
    ]
)
"""JVM options for a fast start: a test ends before an optimising compiler pays off, and loading classes from their
archive takes half the processor time of a session away."""
OPTIONS = "spark.driver.extraJavaOptions"
QUICK = {
    OPTIONS: STARTS_FAST,
    "spark.executor.extraJavaOptions": STARTS_FAST,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


def why_not() -> str:
    """Return why Spark cannot run here; empty if it can."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: make venv-audit"
    from eventd.audit.spark.java import JavaNotFound, java_home

    try:
        java_home()
    except JavaNotFound as error:
        return str(error)
    return ""


def require_spark() -> None:
    """Skip the test, with the reason, if Spark cannot run."""
    if reason := why_not():
        pytest.skip(reason)


@contextlib.contextmanager
def session_or_skip(folder: Path) -> Iterator[SparkSession]:
    """Yield a session with two cores that writes below `folder`."""
    require_spark()
    from eventd.audit.spark.session import open_session

    with open_session("local[2]", app="tests", memory=MEMORY, scratch=folder, conf=QUICK) as session:
        _connect_finalizer(session)
        yield session


class _Released:
    """A Python object that Java is handed and lets go of."""

    class Java:
        implements = ("java.lang.Runnable",)


def _connect_finalizer(session: SparkSession) -> None:
    """Have Java's collector call back once.

    When it has collected a callback of a stream, it opens a connection, whose thread in this process then stays: the
    leak check would blame a later test, whichever is running.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    java: Any = session.sparkContext
    ensure_callback_server_started(java._gateway)
    before = threading.active_count()
    java._jvm.java.util.ArrayList().add(_Released())

    def connected() -> bool:
        gc.collect()
        java._jvm.System.gc()
        return threading.active_count() > before

    wait_for(connected, "Java's collector to call back", seconds=200)
