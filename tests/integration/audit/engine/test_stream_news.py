"""When a stream audits that looks for reports itself: where Spark Connect, or Spark's storage, leaves it no batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from eventd.audit.engine import run, stream
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.stream import Stream, StreamBatch, StreamRequest
from eventd.audit.report.objectives import read_conditions
from eventd.errors import CheckFailed, EventdError, LakeUnavailable
from eventd.lake.storage import connect
from tests.support.lakes import ship, ship_state
from tests.support.local_spark import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eventd.audit.spark.locations import Location


class Caller:
    """The caller of a stream. It ends the stream after so many batches, or when it was asked too often."""

    def __init__(self, batches: int, most: int = 50) -> None:
        self.batches: list[StreamBatch] = []
        self.troubles: list[LakeUnavailable] = []
        self._wanted = batches
        self._left = most

    @property
    def ended(self) -> bool:
        self._left -= 1
        return len(self.batches) >= self._wanted or self._left < 0

    def listen(self) -> None:
        """Nothing is to be done."""

    def batch(self, batch: StreamBatch) -> None:
        self.batches.append(batch)

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        self.troubles.append(error)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with one segment, whose node has written no state yet."""
    ship(connect(str(tmp_path / "lake")), 0, 10)
    return tmp_path / "lake"


@pytest.fixture(autouse=True)
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "is_remote", lambda _: True)


def stream_of(lake: Path, caller: Caller, **how: Any) -> Stream:
    request = AuditRequest(str(lake), f"{lake}-out", conditions=how.pop("conditions", ()))
    return Stream(cast("SparkSession", LocalSpark()), StreamRequest(request, every=0, **how), caller)


def fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first audit fail as if the lake were gone."""
    failures = iter([LakeUnavailable("the lake is gone")])

    def audit(*args: Any, **how: Any) -> Any:
        for failure in failures:
            raise failure
        return run.audit(*args, **how)

    monkeypatch.setattr("eventd.audit.engine.stream.audit", audit)


def test_a_report_is_audited_again_if_its_audit_failed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship_state(connect(str(lake)), 10)
    fail_once(monkeypatch)
    caller = Caller(batches=1)
    stream_of(lake, caller).follow()
    assert [str(one) for one in caller.troubles] == ["the lake is gone"]
    assert len(caller.batches) == 1


def test_a_report_is_audited_once(lake: Path) -> None:
    ship_state(connect(str(lake)), 10)
    caller = Caller(batches=2, most=5)
    stream_of(lake, caller).follow()
    assert len(caller.batches) == 1


def test_a_batch_of_spark_fails_until_its_report_is_audited(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship_state(connect(str(lake)), 10)
    fail_once(monkeypatch)
    caller = Caller(batches=5)
    one = stream_of(lake, caller)
    by_spark = SimpleNamespace(by_spark=True, open=lambda _: connect(str(lake)))
    one._places = one._places._replace(lake=cast("Location", by_spark))
    no_rows = cast("DataFrame", None)
    with pytest.raises(EventdError, match="the batch did not finish"):
        one._on_batch(no_rows, 0)
    for number in range(3):
        one._on_batch(no_rows, number)
    assert len(caller.batches) == 1


@pytest.mark.parametrize("has_state", [False, True])
def test_once_audits_a_lake_in_which_no_node_reports(lake: Path, has_state: bool) -> None:
    if has_state:
        ship_state(connect(str(lake)), 10)
    caller = Caller(batches=5)
    one = stream_of(lake, caller, once=True, conditions=read_conditions(["unproven"]))
    with pytest.raises(CheckFailed, match="the audit fails on unproven"):
        one.follow()
    assert [batch.report.failed for batch in caller.batches] == [("unproven",)]
