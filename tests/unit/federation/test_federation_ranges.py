from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import Malformed
from federation.ranges import MAX_POSITION, Mark, Range, RangeAhead, follow

positions = st.integers(0, MAX_POSITION)
epochs = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    epoch, incarnation = draw(epochs), draw(positions)
    if draw(st.booleans()):
        return Range(epoch=epoch, incarnation=incarnation, repair=True)
    lost, after, upto = sorted(draw(st.tuples(positions, positions, positions)))
    known = lost if draw(st.booleans()) else None
    return Range(epoch=epoch, incarnation=incarnation, after=after, upto=upto, lost=known)


@given(ranges())
def test_range_is_read_back(claim: Range) -> None:
    assert Range.from_header(claim.to_header()) == claim


@given(st.text(max_size=30))
def test_any_text_is_a_range_or_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        Range.from_header(text)


def test_header_looks_like_this() -> None:
    claim = Range(epoch="e", incarnation=2, after=1, upto=9, lost=0)
    assert claim.to_header() == 'epoch="e", incarnation=2, after=1, upto=9, lost=0'
    assert Range(epoch="e", repair=True).to_header() == 'epoch="e", incarnation=0, repair'


@pytest.mark.parametrize(
    "text",
    [
        'epoch="e", incarnation=0, repair, lost=1',
        'epoch="e", incarnation=0, after=1, upto=2, more=3',
        'epoch="e", incarnation=?1, after=1, upto=2',
        'epoch="", incarnation=0, repair',
        'epoch=("e"), incarnation=0, repair',
        "repair",
    ],
)
def test_range_with_a_wrong_member_is_malformed(text: str) -> None:
    with pytest.raises(Malformed, match="Eventd-Range"):
        Range.from_header(text)


def covering(after: int, upto: int, *, incarnation: int = 0, lost: int | None = None) -> Range:
    return Range(epoch="e", incarnation=incarnation, after=after, upto=upto, lost=lost)


MARK = Mark(epoch="e", incarnation=0, upto=100, base=10)


def test_gap_is_named_by_where_it_begins_and_ends() -> None:
    step = follow(MARK, covering(150, 160, lost=90))
    assert step.gap == (100, 150)
    assert step.mark == Mark(epoch="e", incarnation=0, upto=160, base=10)


@pytest.mark.parametrize("mark", [None, Mark(epoch="former", incarnation=3, upto=90, base=0)])
def test_gap_before_the_first_batch_of_an_epoch_is_named(mark: Mark | None) -> None:
    step = follow(mark, covering(150, 160, lost=90))
    assert step.gap == (90, 150)
    assert step.mark == Mark(epoch="e", incarnation=0, upto=160, base=90)
    assert follow(mark, covering(150, 160, lost=150)).gap is None


def test_missing_batch_is_told_with_the_mark() -> None:
    with pytest.raises(RangeAhead, match="begins after position 101, the link stands at 100") as caught:
        follow(MARK, covering(101, 160))
    assert caught.value.mark == MARK
    assert (caught.value.code, caught.value.status) == ("range_ahead", 409)


def test_new_life_of_the_sender_that_lost_nothing_took_nothing_back() -> None:
    step = follow(MARK, covering(100, 160, incarnation=1))
    assert not step.taken_back
    assert step.mark == Mark(epoch="e", incarnation=1, upto=160, base=10)
    assert follow(MARK, covering(5, 60, incarnation=1)).taken_back


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20, unique=True).map(sorted), st.data())
def test_mark_rises_to_the_end_however_often_batches_come_again(ends: list[int], data: st.DataObject) -> None:
    """Batches in order, each repeated at will: everything from base to upto was covered, no gap was named."""
    mark = follow(None, covering(ends[0], ends[1])).mark
    for number in range(2, len(ends)):
        for again in (data.draw(st.integers(1, number - 1)), number):
            step = follow(mark, covering(ends[again - 1], ends[again]))
            assert step.gap is None
            mark = step.mark
    assert mark == Mark(epoch="e", incarnation=0, upto=ends[-1], base=ends[0])


@given(positions, positions, positions)
def test_mark_of_one_life_never_goes_back(upto: int, after: int, end: int) -> None:
    mark = Mark(epoch="e", incarnation=0, upto=upto, base=0)
    claim = covering(*sorted((after, end)))
    if claim.after <= upto:
        step = follow(mark, claim)
        assert step.mark is not None
        assert step.mark.upto == max(upto, claim.upto)
        assert not step.taken_back
