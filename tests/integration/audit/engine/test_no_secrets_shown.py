"""The secrets in the addresses of a lake and of a report appear in nothing that an audit writes, prints or raises."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.stream import Stream, StreamRequest
from eventd.audit.segments.spark_tasks import FileShares
from eventd.audit.spark.locations import Location
from eventd.audit.spark.masters import check_form
from eventd.egress.lake.protocol import Terms
from eventd.errors import EventdError, Invalid, LakeUnavailable
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import LocalSpark, run_audit

SECRETS = ("hushhush", "veiledveiled")
SETTINGS = FullSettings(nodes=3, events=60, span=3600 * SECOND, lose=2)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """An address with a password and a token; the store behind it takes them for parts of a path."""
    return f"memory://me:hushhush@host{tmp_path}/lake?token=veiledveiled"


def assert_silent(*texts: str) -> None:
    for text in texts:
        assert not [secret for secret in SECRETS if secret in text], text


def test_an_audit_writes_no_secret(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "eventd")
    generate(SETTINGS, address)
    out = address.replace("/lake?", "/report?")
    report = run_audit(AuditRequest(lake=address, out=out))
    assert report.lake.url.startswith("memory://***@host/")
    storage = connect(out)
    written = {file.path: storage.read(file.path) for file in storage.list("")}
    assert {"report.json", "report.html", "state/index.msgpack"} <= written.keys()
    assert_silent(*(content.decode("latin-1") for content in written.values()), *written, repr(report))
    printed = capfd.readouterr()
    assert_silent(printed.out, printed.err, caplog.text)


def test_what_holds_an_address_has_a_repr_without_secrets(address: str) -> None:
    out = address.replace("/lake?", "/report?")
    request = AuditRequest(lake=address, out=out, master="sc://host:1/;token=hushhush")
    places = request.places()
    streamed = StreamRequest(request, checkpoint=address)
    terms = Terms(database=address, lake=address, rows=1, payloads=False, compact_after=0, retention=0, nice=0)
    assert_silent(*map(repr, (request, places, places.lake, FileShares(places.lake, ()), streamed, terms)))


@pytest.mark.parametrize(
    "master",
    [
        *("sc://host:15002;token=hushhush", "sc://host:x/;token=hushhush", "spark://host:7o77;token=hushhush"),
        *("http://me:hush/hushhush@host:7077", "local[x];token=hushhush"),
    ],
)
def test_a_master_that_is_not_one_is_named_without_its_token(master: str) -> None:
    with pytest.raises(Invalid, match="is not a Spark master") as refused:
        check_form(master)
    assert_silent(str(refused.value), refused.value.hint)


def test_a_lake_that_cannot_be_reached_is_named_without_secrets(address: str, tmp_path: Path) -> None:
    with pytest.raises(EventdError) as refused:
        run_audit(AuditRequest(lake=address, out=str(tmp_path / "out")))
    assert_silent(str(refused.value), refused.value.hint)


def test_a_file_that_spark_does_not_find_is_named_without_secrets() -> None:
    class Reader:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: self

        def load(self, paths: list[str]) -> Any:
            raise ValueError(f"[PATH_NOT_FOUND] Path does not exist: {paths[0]}. SQLSTATE: 42K03")

    spark: Any = LocalSpark()
    spark.read = Reader()
    with pytest.raises(LakeUnavailable, match=r"PATH_NOT_FOUND") as refused:
        FileShares(Location("s3://me:hushhush@bucket/lake", by_spark=True), [["landing/a"]]).frame(spark)
    assert_silent(str(refused.value))


def test_what_spark_says_of_a_stream_is_told_without_secrets(address: str, tmp_path: Path) -> None:
    class Ended:
        ended = True

    request = StreamRequest(AuditRequest(lake=address, out=str(tmp_path)), checkpoint="s3a://me:hushhush@b/checkpoint")
    spark: Any = LocalSpark()
    listener: Any = Ended()
    running = Stream(spark, request, listener)
    texts = (
        f"Query terminated with exception: cannot read {address} and s3a://me:hushhush@b/checkpoint/x SQLSTATE: 1",
        f"java.io.IOException: {'x' * 240} {address}",
    )
    for text in texts:
        for begun in (0, 1):
            told: Any = running._reason(RuntimeError(text), begun)
            assert_silent(str(told), told.hint)
