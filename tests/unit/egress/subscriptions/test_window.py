"""How long a batching window stays open, and the run it becomes."""

from __future__ import annotations

import msgspec
import pytest

from eventd.egress.loop.collecting import LONGEST
from eventd.egress.subscriptions.trigger import TriggerEvent
from eventd.egress.subscriptions.window import MOST_BYTES, MOST_SEEN, MOST_SEEN_BYTES, RunBatch, RunWindow
from eventd.log.core.values import Record
from eventd.testing import NOW, event

MS = 1000


def seen(
    name: str,
    position: int,
    *,
    at: int = 0,
    key: str = "",
    subject: str = "",
    runs: bool = True,
    ends: bool = False,
    size: int = 100,
    observed: int = 0,
) -> TriggerEvent:
    """A record at a position, recorded and observed so many microseconds after NOW."""
    plain = event(name, subject=subject, observed=NOW + observed)
    said = msgspec.structs.replace(plain, dedupe_key=key or name)
    record = Record(position, 1, position, "a", "t", subject, name, NOW + observed, None, NOW + at, "", size, "")
    return TriggerEvent(record, said, runs, ends)


@pytest.mark.parametrize(
    ("window", "debounce", "events", "now", "left"),
    [
        (None, None, [0], 0, 0),
        (80, None, [0], 0, 80),
        (80, None, [0, 30], 30, 50),
        (80, None, [0, 30], 90, 0),
        (None, 80, [0, 30], 30, 80),
        (None, 80, [0], 79, 1),
        (100, 60, [0, 50], 50, 50),
        (100, 60, [0, 10], 10, 60),
        (None, 40_000, [0, 30_000, 55_000], 55_000, 5_000),
        (90_000, 80_000, [0], 0, 80_000),
    ],
)
def test_what_is_left_of_it(window: int | None, debounce: int | None, events: list[int], now: int, left: int) -> None:
    scaled = [None if value is None else value * MS for value in (window, debounce)]
    opened = RunWindow(*scaled)
    opened.add(seen(f"e{at}", number, at=at * MS) for number, at in enumerate(events, 1))
    assert opened.closes_in(NOW + now * MS) == left * MS


def test_an_empty_one_is_closed() -> None:
    assert RunWindow(80 * MS, 80 * MS).closes_in(NOW) == 0


def test_what_ends_others_does_not_wait() -> None:
    window = RunWindow(80 * MS, None)
    window.add([seen("x", 1, runs=False, ends=True)])
    assert window.closes_in(NOW) == 0
    window.add([seen("e", 2, at=10 * MS)])
    assert window.closes_in(NOW + 20 * MS) == 70 * MS, "it begins with the first event that is run"


def test_a_clock_that_was_set_back_makes_it_no_longer() -> None:
    window = RunWindow(None, 80 * MS)
    window.add([seen("e", 1, at=3_600_000 * MS)])
    assert window.closes_in(NOW) == 80 * MS
    assert window.closes_in(NOW + 30 * MS) == 50 * MS
    assert LONGEST == 60_000 * MS


def test_it_is_full_by_events_bytes_and_records() -> None:
    by_events, by_bytes, by_records = RunWindow(MS, None, most=2), RunWindow(MS, None), RunWindow(MS, None)
    by_events.add([seen("a1", 1, key="a"), seen("a2", 2, key="a")])
    assert (by_events.is_full, by_events.room) == (False, 1)
    by_events.add([seen("b", 3)])
    assert (by_events.is_full, by_events.closes_in(NOW)) == (True, 0)
    by_bytes.add([seen("a", 1, size=MOST_BYTES - 1)])
    assert (by_bytes.is_full, by_bytes.room_bytes) == (False, 1)
    by_bytes.add([seen("b", 2, size=1)])
    assert by_bytes.is_full
    by_records.add(seen(f"a{number}", number, key="a", size=1) for number in range(1, MOST_SEEN))
    assert not by_records.is_full
    by_records.add([seen("a", MOST_SEEN, key="a", size=1)])
    assert by_records.is_full, "one event stands for all of them, and memory is bounded all the same"


def test_what_was_replaced_weighs_nothing_but_is_bounded() -> None:
    window = RunWindow(MS, None)
    window.add(seen(f"a{number}", number, key="a", size=1 << 20) for number in range(15))
    assert (window.is_full, window.room_bytes) == (False, MOST_BYTES - (1 << 20))
    window.add([seen("a", 15, key="a", size=MOST_SEEN_BYTES - (15 << 20))])
    assert window.is_full


# --- batches --------------------------------------------------------------------------------------------------------


def ids(batch: RunBatch) -> list[str]:
    return [one.event.id for one in batch.kept]


def test_a_batch_is_in_the_order_of_observation() -> None:
    found = [seen("late", 1, observed=5), seen("b", 2), seen("a", 3)]
    assert ids(RunBatch.of(0, 3, found)) == ["a", "b", "late"]


def test_the_last_of_a_key_goes() -> None:
    batch = RunBatch.of(0, 4, [seen("a1", 1, key="a"), seen("b", 2), seen("a2", 3, key="a"), seen("b", 4)])
    assert ids(batch) == ["a2", "b"]
    assert [one.position for one in batch.kept] == [3, 4], "a refresh goes in the place of what it refreshes"
    assert batch.coalesced == ["a1"]


@pytest.mark.parametrize(
    ("words", "ended"), [("o", []), ("ox", ["s"]), ("oxo", []), ("xo", []), ("x", ["s"]), ("oxox", ["s"])]
)
def test_the_last_word_about_a_subject_holds(words: str, ended: list[str]) -> None:
    found = [
        seen(f"{word}{at}", at, subject="s", runs=word == "o", ends=word == "x") for at, word in enumerate(words, 1)
    ]
    assert RunBatch.of(0, len(words), found).ended == ended


def test_a_word_about_nothing_ends_nothing() -> None:
    assert RunBatch.of(0, 1, [seen("x", 1, runs=False, ends=True)]).ended == []


def test_half_of_it_is_what_was_recorded_first() -> None:
    batch = RunBatch.of(0, 9, [seen(name, at) for at, name in enumerate("abcde", 1)])
    half = batch.first_half()
    assert (ids(half), half.after, half.upto) == (["a", "b"], 0, 2)
    assert ids(half.first_half()) == ["a"]


def test_half_of_it_brings_back_nothing_that_was_replaced() -> None:
    found = [seen(f"{key}{turn}", 4 * turn + at, key=key) for turn in (0, 1) for at, key in enumerate("abcd", 1)]
    half = RunBatch.of(0, 8, found).first_half()
    assert (ids(half), half.upto) == (["a1", "b1"], 6)
    assert half.coalesced == ["a0", "b0", "c0", "d0"]
    assert ids(half.first_half()) == ["a1"]
