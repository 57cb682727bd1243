"""The audit as a stream: its output while a lake grows, and the nodes' states as Spark reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.engine import stream
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.stream import Stream, StreamBatch, StreamRequest, checkpoint_of
from eventd.audit.report.objectives import read_conditions
from eventd.audit.review.earlier import read_earlier
from eventd.audit.review.verification import verify_report
from eventd.audit.spark.session import quiet
from eventd.errors import CheckFailed, Conflict, Invalid, LakeUnavailable
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from eventd.streams.key_pairs import make_key, pem_of
from federation.ed25519 import pin
from federation.keys import Key
from federation.peers import ANY
from tests.support.federations import FullSettings, copy_generated
from tests.support.growing import GrowingLake
from tests.support.lakes import NOON, ship_state
from tests.support.local_spark import LocalSpark, run_audit
from tests.support.tampering import withdraw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOUR = 3600 * SECOND
BOOKS = FullSettings(nodes=2, events=3000, span=6 * HOUR, types=2, segment_rows=1000)
KEY = ("group", "source", "peer", "type", "hour")


class Heard:
    """A stream's settings, with a record of what it reported."""

    ended = False

    def __init__(self) -> None:
        self.batches: list[StreamBatch] = []

    def listen(self) -> None:
        """Nothing is to be done."""

    def batch(self, batch: StreamBatch) -> None:
        self.batches.append(batch)

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        raise error


@pytest.fixture
def no_leaks() -> None:
    """The threads over which Spark calls Python back stay as long as Spark itself does."""
    return


def follow(spark: SparkSession | None, lake: Path, out: Path, **more: Any) -> StreamBatch:
    """Process the present state of the lake, by the stand-in of Spark without a session; return the batch."""
    following = StreamRequest(AuditRequest(str(lake), str(out)), once=True, **more)
    following, heard = replace(following, checkpoint=checkpoint_of(following)), Heard()
    if spark is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "is_remote", lambda _: True)  # it has no queries: the stream looks for reports itself
            Stream(cast("SparkSession", LocalSpark()), following, heard).follow()
    else:
        with quiet(spark):
            Stream(spark, following, heard).follow()
    (batch,) = heard.batches
    return batch


def put_down(out: Path) -> pa.Table:
    """All that is final, in the order in which it was put down."""
    return pa.concat_tables(pq.read_table(path) for path in sorted((out / "final" / "hours").iterdir()))


def latest(out: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The highest revision of each row, as the table `hours` has it."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(put_down(out).to_pylist(), key=lambda row: row["revision"]):
        key = tuple(row[name] for name in KEY)
        found[key] = {name: row[name] for name in row if name not in ("revision", "settled_at")}
    return found


def hours(out: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The table `hours` of the last batch."""
    return {tuple(row[name] for name in KEY): row for row in pq.read_table(out / "tables" / "hours").to_pylist()}


def test_hours_become_final_once_and_say_what_a_run_says_and_deleted_rows_are_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy_generated(BOOKS, str(tmp_path / "whole"))
    growing, out = GrowingLake(tmp_path / "whole", tmp_path / "lake"), tmp_path / "out"
    begin = BOOKS.start
    growing.grow_until(begin + 3 * HOUR)
    early = follow(spark, growing.lake, out, watermark=HOUR // 2)
    assert (early.report.totals.findings, early.report.totals.missing) == (0, 0)
    first = put_down(out)
    assert early.final == first.num_rows
    ends = {int(time.timestamp()) * SECOND + HOUR for time in first["hour"].to_pylist()}
    assert ends == {begin + HOUR, begin + 2 * HOUR}, "the third hour is waited for"

    # A node promises what is not there, as one whose clock was put forward: that its ledger lacks rows shows in others.
    growing.grow(without=growing.late(Ledger.EVENTS, "site-02", begin + 3 * HOUR))
    assert follow(None, growing.lake, out, watermark=HOUR // 2).report.verdict == "incomplete"
    settled = latest(out).values()
    assert not any(row["missing"] or row["disputed"] or row["unproven"] for row in settled), "no doubtful hour is final"

    growing.grow()
    late = follow(spark, growing.lake, out, watermark=HOUR // 2)
    batches = sorted(path.name for path in (out / "checkpoint" / "commits").glob("[0-9]*"))
    assert batches == ["0", "1"], "what has grown is news to Spark, which continues from its checkpoint"
    assert (late.report.verdict, late.report.totals.missing) == ("complete", 0)
    anew = run_audit(AuditRequest(str(growing.lake), str(tmp_path / "other")))
    assert (late.report.totals, late.report.findings) == (anew.totals, anew.findings)
    final, told = latest(out), hours(out)
    assert final == {key: told[key] for key in final}
    rows = put_down(out).to_pylist()
    assert len(final) > first.num_rows
    assert len({(*(row[name] for name in KEY), row["revision"]) for row in rows}) == len(rows), "nothing is there twice"
    assert rows[: first.num_rows] == first.to_pylist(), "what was put down is never changed"

    key, upto = withdraw(connect(str(growing.lake)), "site-01", Ledger.DELIVERIES, 2)
    report = follow(None, growing.lake, out, watermark=HOUR // 2).report
    (told,) = (one for one in report.troubles if one.kind == "deleted")
    assert told.where == key
    assert told.message.startswith(f"rows 1 to {upto:,} were")


def test_states_are_read_at_once_and_followed(spark: SparkSession, tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship_state(storage, 70, book=Ledger.DELIVERIES, as_of=NOON)
    ship_state(storage, 5, node="site-b", as_of=NOON)

    told = spark.read.format("eventd").option("book", "states").load(storage.url).toArrow().to_pylist()
    assert len(told) == 2 * len(Ledger)
    found = {(row["node"], row["head"], row["upto"]) for row in told if row["book"] == "deliveries"}
    assert found == {("site-a", 70, 70), ("site-b", 5, 0)}
    assert {int(row["as_of"].timestamp()) * SECOND for row in told} == {NOON}

    def seen() -> list[str]:
        """Return the nodes that have shipped a state since the stream first began."""
        rows = spark.readStream.format("eventd").option("book", "states").load(storage.url).where("book = 'events'")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "seen")).awaitTermination()
        return sorted(row.node for row in spark.read.parquet(str(tmp_path / "seen")).collect())

    assert seen() == ["site-a", "site-b"]
    ship_state(storage, 5, node="site-b", as_of=NOON - SECOND)
    assert seen() == ["site-a", "site-b", "site-b"], "a clock that was set back is news, and no other node shipped"


def test_a_condition_that_is_met_ends_it_with_a_signed_report_and_another_lake_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, base, out = str(tmp_path / "lake"), str(tmp_path / "base"), tmp_path / "out"
    copy_generated(FullSettings(nodes=2, events=100, span=HOUR, lose=2), lake)
    run_audit(AuditRequest(lake, base))
    private = make_key(bytes(32))
    key = Key.ed25519(pin(private.public_key()), private=pem_of(private), owner=ANY)
    request = AuditRequest(
        lake, str(out), conditions=read_conditions(["missing"]), signing_key=key, baseline=read_earlier(base)
    )
    asked, heard = StreamRequest(request, once=True), Heard()
    with quiet(spark), pytest.raises(CheckFailed, match="the audit fails on missing"):
        Stream(spark, replace(asked, checkpoint=checkpoint_of(asked)), heard).follow()
    (batch,) = heard.batches
    assert batch.report.failed == ("missing",)
    assert not list((out / "checkpoint" / "commits").glob("[0-9]*")), "a restarted stream needs all states again"
    compared = batch.report.baseline
    assert compared is not None
    assert (compared.new, compared.known, compared.gone) == (0, 2, 0)
    verified = verify_report(str(out), [key])
    assert verified.report is not None
    assert (verified.faults, verified.report.made_at) == ([], batch.report.made_at)

    copy_generated(FullSettings(nodes=2, events=10, span=HOUR, seed=2), str(tmp_path / "another"))
    with pytest.raises(Conflict, match="holds an audit of another lake"):
        follow(spark, tmp_path / "another", out)


def test_where_spark_may_not_reach_a_checkpoint_has_to_be_named(tmp_path: Path) -> None:
    following = StreamRequest(AuditRequest("lake", "memory://out"))
    with pytest.raises(Invalid, match="may not be able to keep its checkpoint") as refused:
        checkpoint_of(following)
    assert "--checkpoint" in refused.value.hint
    assert checkpoint_of(replace(following, checkpoint="hdfs://a/b")) == "hdfs://a/b"
    assert checkpoint_of(replace(following, checkpoint=str(tmp_path))) == f"file://{tmp_path}"
    assert checkpoint_of(StreamRequest(AuditRequest("lake", str(tmp_path)))) == f"file://{tmp_path}/checkpoint"
