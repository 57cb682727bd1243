"""The keys of rows by some words and a time, by which cells are summed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Numbers, Words
from eventd.audit.arrays.counts import Key, index, key_of, parts

_MOST_KEYS: Final = 1 << 50
"""Maximum number of possible keys: with another column of up to 4,096 values, they still fit into one number."""


class Grid(NamedTuple):
    """The keys of rows, each combined from some columns of words and the time.

    A key has an index into `times` instead of the time itself. If the columns have too many possible combinations, the
    keys number only the combinations that occur, and `rows` has one row for each key; otherwise `rows` is None.
    """

    key: Key
    words: Mapping[str, Words]
    times: Numbers
    places: Numbers
    rows: Numbers | None

    @classmethod
    def of(cls, words: Mapping[str, Words], time: Numbers) -> Grid:
        """Return the grid of rows with these words and times. Raises TooManyKeys for more than 2**62 possible keys."""
        times, places = index(time)
        key, rows = key_of(*((column.codes, column.size) for column in words.values()), (places, len(times))), None
        if key.domain > _MOST_KEYS:
            found, rows, values = np.unique(key.values, return_index=True, return_inverse=True)
            key = Key(values, (len(found),))
        return cls(key, words, times, places, rows)

    def split(self, keys: Numbers, beside: int | None = None) -> tuple[dict[str, Words], Numbers, Numbers]:
        """Split keys into their words, their times, and the column that `Key.beside` added with the size `beside`.

        Without `beside`, that column is 0.
        """
        keys, rest = np.divmod(keys, beside or 1)
        if self.rows is not None:
            rows = self.rows[keys]
            return {name: column.at(rows) for name, column in self.words.items()}, self.times[self.places[rows]], rest
        *codes, time = parts(keys, self.key.sizes)
        words = {
            name: Words(code.astype(np.int32), column.values)
            for (name, column), code in zip(self.words.items(), codes, strict=True)
        }
        return words, self.times[time], rest
