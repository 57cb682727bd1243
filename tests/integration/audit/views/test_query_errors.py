"""`audit sql` says what ended a query: Java for lack of memory, a signal, or this machine."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from eventd.audit.views import query
from eventd.errors import EventdError
from eventd.lake.storage import connect, make_lake
from eventd.runtime.chance import SYSTEM

pyspark = pytest.importorskip("pyspark")
protocol = pytest.importorskip("py4j.protocol")
pytestmark = pytest.mark.spark

LAKE = "/srv/lake"


class _Session:
    """Stands for a session of Spark whose queries end with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def sql(self, text: str) -> Any:
        raise self._error


def message(error: Exception) -> str:
    with pytest.raises(EventdError) as raised:
        query._collect(_Session(error), "SELECT 1", 1, LAKE)  # type: ignore[arg-type]
    return str(raised.value)


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The program that stands for Java: a process that ends as it says."""
    program = ["pass"]
    processes: list[subprocess.Popen[bytes]] = []

    class Gateway:
        @property
        def proc(self) -> subprocess.Popen[bytes]:
            processes.append(subprocess.Popen([sys.executable, "-c", program[0]]))
            return processes[-1]

    monkeypatch.setattr(pyspark.SparkContext, "_gateway", Gateway())
    yield program
    for one in processes:
        one.wait()


ENDS = [
    pytest.param(EOFError(), id="no answer"),
    pytest.param(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), id="reset"),
    pytest.param(protocol.Py4JNetworkError("Answer from Java side is empty"), id="empty"),
    pytest.param(protocol.Py4JError("An error occurred while calling o1.sql"), id="no error in it"),
]


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit(3)", "Java had too little memory and has ended (let the query return less"),
        (f"import os; os.kill(os.getpid(), {signal.SIGKILL})", "Java was killed (the system does so without memory"),
        ("import sys; sys.exit(1)", "Java has ended with status 1 (run the query again)"),
    ],
)
def test_the_end_of_java_is_told_by_its_status(java: list[str], error: Exception, program: str, words: str) -> None:
    java[0] = program
    assert message(error).startswith(f"the query failed in Spark: {words}")


def test_of_a_java_that_another_program_started_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace())
    assert message(EOFError()) == "the query failed in Spark: Java does not answer any more (run the query again)"


@pytest.mark.parametrize("step", ["newSession", "conf", "register_views", "quiet"])
@pytest.mark.parametrize("error", ENDS)
def test_java_that_ends_before_the_query_is_one_error(
    java: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, error: Exception
) -> None:
    """A step that fails: to make a session, to set it up, to make the views, or to silence Spark's log."""
    java[0] = "import sys; sys.exit(3)"
    make_lake(connect(str(tmp_path)), 0, SYSTEM)
    fails, works = Mock(side_effect=error), MagicMock()
    own = SimpleNamespace(conf=SimpleNamespace(set=fails if step == "conf" else works))
    spark = SimpleNamespace(newSession=fails if step == "newSession" else lambda: own)
    monkeypatch.setattr(query, "open_session", lambda *_given, **_options: nullcontext(spark))
    monkeypatch.setattr(query, "quiet", fails if step == "quiet" else works)
    monkeypatch.setattr(query, "register_views", fails)
    with pytest.raises(EventdError) as raised:
        query.query_lake(str(tmp_path), "SELECT 1", limit=1)
    assert str(raised.value).startswith("the query failed in Spark: Java had too little memory and has ended")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_an_error_of_this_machine_is_not_taken_for_the_end_of_java(code: int) -> None:
    error = OSError(code, os.strerror(code))
    assert message(error) == f"the query failed: [Errno {code}] {os.strerror(code)}"
