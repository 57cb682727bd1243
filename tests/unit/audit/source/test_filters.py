"""Conditions that Spark hands to a reader: no row and no segment that meets one is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.audit.source.filters import RowCondition, may_hold, number_bounds, read_conditions
from eventd.lake.layout import slot_of
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger
from tests.support.lakes import EPOCH, NOON

NUMBERS = st.integers(-5, 5)
COMPARISONS = st.sampled_from(["EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"])
TEXTS = st.text("ab", max_size=3)


@st.composite
def conditions(draw: st.DrawFn, column: str = "number", *, negated: bool = True) -> RowCondition:
    turned = draw(st.booleans()) if negated else False
    if draw(st.booleans()):
        return RowCondition(column, draw(COMPARISONS), draw(NUMBERS), turned)
    return RowCondition(column, "In", tuple(draw(st.lists(NUMBERS, max_size=3))), turned)


@given(st.lists(st.none() | NUMBERS), conditions())
def test_arrow_selects_the_rows_that_meet_a_condition(values: list[int | None], condition: RowCondition) -> None:
    """Of rows without a value it may keep some: Spark checks them again."""
    table = pa.table({"number": pa.array(values, pa.int64())})
    found = condition.select(table)["number"].to_pylist()
    assert [value for value in found if value is not None] == [
        value for value in values if value is not None and condition.accepts(value)
    ]


@given(
    st.lists(TEXTS),
    TEXTS,
    st.sampled_from(["StringStartsWith", "StringEndsWith", "StringContains", "EqualTo", "LessThan"]),
    st.booleans(),
)
def test_words_are_compared_as_texts(values: list[str], value: str, kind: str, negated: bool) -> None:
    condition = RowCondition("type", kind, value, negated)
    table = pa.table({"type": pa.array(values, pa.string()).dictionary_encode()})
    assert condition.select(table)["type"].to_pylist() == [one for one in values if condition.accepts(one)]


@given(st.lists(conditions()), st.lists(NUMBERS, min_size=1))
def test_no_number_that_meets_all_conditions_is_out_of_bounds(given: list[RowCondition], values: list[int]) -> None:
    after, upto = number_bounds(given, min(values) - 1, max(values))
    met = [value for value in values if all(one.accepts(value) for one in given)]
    assert all(after < value <= upto for value in met)


@given(st.lists(st.integers(0, 200), min_size=1), COMPARISONS, st.integers(0, 200), st.booleans())
def test_no_segment_with_a_row_that_meets_a_condition_is_left_out(
    seconds: list[int], kind: str, second: int, negated: bool
) -> None:
    times = [NOON + one * 1_000_000 for one in seconds]
    found = manifest(times=(min(times), max(times)), slots=(slot_of(min(times)), slot_of(max(times))))
    for column in ("recorded_at", "event_at"):
        condition = RowCondition(column, kind, moment(second), negated)
        if any(condition.accepts(moment(one)) for one in seconds):
            assert may_hold(found, [condition])


def test_segments_of_other_times_are_left_out() -> None:
    found = manifest(times=(NOON, NOON + 10), slots=(slot_of(NOON), slot_of(NOON)))
    assert not may_hold(found, [RowCondition("recorded_at", "GreaterThan", moment(1))])
    assert not may_hold(found, [RowCondition("event_at", "In", (moment(60), moment(-1)))])
    assert may_hold(found, [RowCondition("event_at", "In", (moment(59),)), RowCondition("id", "EqualTo", "x")])
    assert may_hold(manifest(times=None, slots=None), [RowCondition("recorded_at", "EqualTo", moment(0))])


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class In(EqualTo):
    pass


@dataclass(frozen=True)
class IsNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: Any


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (EqualTo(("node",), "a"), [RowCondition("node", "EqualTo", "a")]),
        (Not(In(("node",), ("a", None))), [RowCondition("node", "In", ("a",), True)]),
        (EqualTo(("node", "inner"), "a"), []),
        (EqualTo(("peer",), "a"), []),
        (EqualTo(("node",), None), []),
        (IsNull(("node",)), []),
        (Not(IsNull(("node",))), []),
    ],
)
def test_filters_are_read_by_the_names_of_their_classes(given: Any, read: list[RowCondition]) -> None:
    assert list(read_conditions([given], ["node"])) == read


def test_a_value_that_no_row_can_have_is_left_to_spark() -> None:
    table = pa.table({"digest": pa.array([bytes(32)], pa.binary(32))})
    assert RowCondition("digest", "EqualTo", b"short").select(table).num_rows == 1


def moment(second: int) -> datetime:
    return datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(seconds=second)


def manifest(*, times: tuple[int, int] | None, slots: tuple[int, int] | None) -> Manifest:
    return Manifest(
        book=Ledger.EVENTS,
        node="site-a",
        epoch=EPOCH,
        after=0,
        upto=10,
        rows=10,
        bytes=1,
        sha256="",
        slots=slots,
        times=times,
        written_at=NOON,
    )
