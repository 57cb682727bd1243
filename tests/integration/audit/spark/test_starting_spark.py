"""The error if Spark cannot start, and the useful part of Java's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.spark import extra, session
from eventd.audit.spark.masters import SparkUnavailable
from eventd.audit.spark.session import last_cause, open_session
from eventd.errors import Invalid, MissingExtra
from tests.support.ports import free_port


@pytest.mark.parametrize(
    "master", ["", "localhost", "local[x]", "local[2", "http://host:7077", "spark://", "spark://h:x", "sc://h:x"]
)
def test_what_is_no_master_is_refused_before_anything_is_started(master: str) -> None:
    with pytest.raises(Invalid, match="is not a Spark master") as refused, open_session(master or "?", app="test"):
        pass
    assert "spark://host:7077" in refused.value.hint


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    port = free_port()
    with (
        pytest.raises(SparkUnavailable, match=rf"no Spark master answers at spark://127.0.0.1:{port}"),
        open_session(f"spark://127.0.0.1:{port}", app="test"),
    ):
        pass


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extra, "import_module", missing)
    with pytest.raises(MissingExtra, match="numpy") as refused, open_session(app="test"):
        pass
    assert refused.value.hint == "in a clone: pip install '.[audit]'"


def test_what_spark_is_to_log_by_is_shipped() -> None:
    assert "rootLogger.level = warn" in Path(session.LOGGING).read_text()


def test_a_secret_at_the_end_of_a_shortened_cause_is_not_shown_in_part() -> None:
    url = "s3a://me:hushhush@bucket/lake"
    told = f"java.io.IOException: {'x' * 285} {url}"
    assert "hush" in told[21:321]
    assert "hush" not in last_cause(told, url)
    assert "hush" not in last_cause(told.replace("me:", ""), url)


def test_the_cause_of_a_java_error_is_one_line() -> None:
    told = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.SparkContext$.x(SparkContext.scala:3391)
Caused by: java.net.BindException: Cannot assign requested address: Service failed
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
"""
    assert last_cause(told) == "Cannot assign requested address: Service failed"
    assert last_cause("") == "no reason was given"
