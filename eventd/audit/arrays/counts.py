"""Sums columns of numbers by keys of several columns. It is fast if rows with equal keys follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Numbers

DENSE: Final = 1 << 21
"""Number of possible keys up to which an array with an entry for each is cheaper than sorting."""


class Key(NamedTuple):
    """Several columns of small numbers, combined into one number per row; `sizes`: how many values each column has."""

    values: Numbers
    sizes: tuple[int, ...]

    @property
    def domain(self) -> int:
        """Return the number of possible keys."""
        product = 1
        for size in self.sizes:
            product *= size
        return product

    def at(self, places: Numbers | npt.NDArray[np.bool_]) -> Key:
        """Return the key of the rows at these indexes, or under this mask."""
        return Key(self.values[places], self.sizes)

    def beside(self, column: npt.NDArray[np.integer], size: int) -> Key:
        """Return the key with one more column, which varies fastest."""
        return Key(self.values * size + column, (*self.sizes, size))


class TooManyKeys(ValueError):
    """The columns have more combinations of values than one number can hold. The text calls the segment "its"."""


def key_of(*columns: tuple[npt.NDArray[np.integer], int]) -> Key:
    """Combine several columns with their sizes into one key. Raises TooManyKeys for more than 2**62 possible keys."""
    sizes = tuple(max(1, size) for _, size in columns)
    values = columns[0][0].astype(np.int64)
    for (column, _), size in zip(columns[1:], sizes[1:], strict=True):
        values *= size
        values += column
    key = Key(values, sizes)
    if key.domain > 1 << 62:
        raise TooManyKeys("its rows have too many different values")
    return key


class Indexed(NamedTuple):
    """A column as indexes into `values`, which are distinct and ascending; some of them may occur in no row."""

    values: Numbers
    places: Numbers


def index(column: Numbers) -> Indexed:
    """Return a column of whole numbers as indexes into its values.

    Memory is bounded by the number of rows, however far apart the numbers are: any member of a group can emit an event
    of the year 1 and one of the year 9999.
    """
    if not len(column):
        return Indexed(column, column)
    first, last = int(column.min()), int(column.max())
    if last - first < DENSE:  # cheaper than sorting
        return Indexed(np.arange(first, last + 1), column - first)
    values, places = np.unique(column, return_inverse=True)
    return Indexed(values, places)


def is_among(values: Numbers, wanted: Numbers) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are among those `wanted`, which are ascending."""
    if not len(wanted):
        return np.zeros(len(values), bool)
    found: npt.NDArray[np.bool_] = wanted[np.searchsorted(wanted, values).clip(0, len(wanted) - 1)] == values
    return found


def parts(keys: Numbers, sizes: Sequence[int]) -> list[Numbers]:
    """Return the columns that keys were combined from; `sizes` as in `Key`."""
    found = []
    rest = keys
    for size in reversed(sizes):
        rest, column = np.divmod(rest, size)
        found.append(column)
    return found[::-1]


def count(key: Key) -> tuple[Numbers, Numbers]:
    """Return the keys that occur, ascending, and how often each occurs."""
    if not len(key.values):
        return key.values, key.values
    if key.domain <= max(DENSE, len(key.values)):
        counted = np.bincount(key.values, minlength=1)
        present = np.flatnonzero(counted)
        return present, counted[present]
    present, counted = np.unique(key.values, return_counts=True)
    return present, counted.astype(np.int64)


class Sums(NamedTuple):
    """For each key that occurs, ascending: number of rows, sum of one column, bounds of a second, sum of a third.

    Sums are modulo 2**64; `content`, the sum of the third column, is 0 without such a column.
    """

    keys: Numbers
    rows: Numbers
    total: Numbers
    low: Numbers
    high: Numbers
    content: Numbers


def add_up(key: Key, summed: Numbers, ranged: Numbers, content: Numbers | None = None) -> Sums:
    """Return, for each key, the number of rows, the sums of `summed` and `content`, and the bounds of `ranged`."""
    values = key.values
    if not len(values):
        return Sums(values, values, values, values, values, values)
    starts = _starts(values)
    rows = np.diff(starts, append=len(values))
    runs = Sums(values[starts], rows, *_reduce(starts, summed, ranged, ranged), _sum(starts, content))
    order = np.argsort(runs.keys, kind="stable")
    keys, rows, total, low, high, third = (column[order] for column in runs)
    starts = _starts(keys)
    reduced = _reduce(starts, total, low, high)
    return Sums(keys[starts], np.add.reduceat(rows, starts), *reduced, np.add.reduceat(third, starts))


def _sum(starts: Numbers, values: Numbers | None) -> Numbers:
    return np.zeros(len(starts), np.int64) if values is None else np.add.reduceat(values, starts)


def _starts(values: Numbers) -> Numbers:
    """Return the index of the first value of each run of equal values."""
    return np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))


def _reduce(starts: Numbers, total: Numbers, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    return np.add.reduceat(total, starts), np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def total_by_key(key: Key, values: Numbers, keys: Numbers) -> Numbers:
    """Return the sum of `values` for each of `keys`: those that occur in `key`, ascending.

    The sums must be exact as floats, so below 2**53.
    """
    if not len(keys):
        return keys
    if key.domain <= DENSE:
        found: Numbers = np.bincount(key.values, weights=values)[keys].astype(np.int64)
        return found
    return add_up(key, values, values).total


def highest(key: Key, values: Numbers, keys: Numbers) -> Numbers:
    """Return the highest value for each of the keys."""
    if not len(keys):
        return keys
    first, last = int(keys[0]), int(keys[-1])
    if last - first < DENSE:
        found = np.full(last - first + 1, NEVER, np.int64)
        np.maximum.at(found, key.values - first, values)
        return found[keys - first]
    present, places = np.unique(key.values, return_inverse=True)
    found = np.full(len(present), NEVER, np.int64)
    np.maximum.at(found, places, values)
    return found[np.searchsorted(present, keys)]
