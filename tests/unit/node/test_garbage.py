"""When the garbage collector runs: when the process has grown, however few objects that took."""

from __future__ import annotations

from eventd.node.garbage import ALL_BYTES, YOUNG_BYTES, Garbage, resident_bytes
from eventd.testing import ManualClock


class Process:
    """A process of a size, of which a collection frees some."""

    def __init__(self) -> None:
        self.size = 100 << 20
        self.freed = 0
        self.collected: list[int] = []

    def measure(self) -> int:
        return self.size

    def collect(self, generation: int) -> None:
        self.collected.append(generation)
        self.size -= self.freed


def test_what_is_young_is_looked_through_when_the_process_has_grown() -> None:
    process = Process()
    garbage = Garbage(ManualClock(), process.measure, process.collect)
    process.size += YOUNG_BYTES
    garbage.look()
    assert process.collected == []
    process.size, process.freed = process.size + 1, YOUNG_BYTES
    garbage.look()
    garbage.look()
    assert process.collected == [1], "and once is enough"
    process.size += YOUNG_BYTES + 1
    garbage.look()
    assert process.collected == [1, 1]


def test_everything_is_when_that_did_not_help() -> None:
    process = Process()
    garbage = Garbage(ManualClock(), process.measure, process.collect)
    while process.size <= (100 << 20) + ALL_BYTES:
        process.size += YOUNG_BYTES + 1
        garbage.look()
    assert process.collected == [1] * (ALL_BYTES // YOUNG_BYTES - 1) + [2]


def test_growth_counts_from_where_the_process_was_smallest() -> None:
    process = Process()
    garbage = Garbage(ManualClock(), process.measure, process.collect)
    process.size -= 50 << 20
    garbage.look()
    process.size += YOUNG_BYTES + 1
    garbage.look()
    assert process.collected == [1]


def test_the_size_is_that_of_this_process() -> None:
    assert 1 << 20 < resident_bytes() < 1 << 40
