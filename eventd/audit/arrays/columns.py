"""The columns of a segment as arrays of numbers: words become codes, times microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEVER: Final = int(np.iinfo(np.int64).min)
"""Stands for a time or a number that is null; as a lower bound, it excludes nothing."""


class Words(NamedTuple):
    """A column of few distinct texts: for each row the index of its text in `values`; an empty text stands for null."""

    codes: npt.NDArray[np.int32]
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of `values`, of which some may be in no row."""
        return len(self.values)

    def where(self, wanted: Callable[[str], bool]) -> Mask:
        """Return a mask of the rows whose text is wanted; `wanted` is called once per text."""
        return np.array([wanted(value) for value in self.values], dtype=bool)[self.codes]

    def at(self, rows: Mask | Numbers) -> Words:
        """Return the column for the rows at these indexes, or under this mask."""
        return Words(self.codes[rows], self.values)

    def to_arrow(self) -> pa.DictionaryArray:
        """Return the column as an Arrow dictionary array."""
        import pyarrow as pa

        return pa.DictionaryArray.from_arrays(self.codes.astype(np.int32), pa.array(self.values, pa.string()))

    def equal(self, other: Words) -> Mask:
        """Return a mask of the rows in which both columns have the same text."""
        place = {value: at for at, value in enumerate(self.values)}
        same: Mask = np.array([place.get(value, -1) for value in other.values], np.int64)[other.codes] == self.codes
        return same


class Columns:
    """A table whose columns are converted to arrays on request; words and `computed` numbers are cached."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self._table = table.unify_dictionaries().combine_chunks()
        self._words: dict[str, Words] = {}
        self._computed: dict[tuple[str, bytes], Numbers] = {}

    def has(self, name: str) -> bool:
        """Return whether the table has a column of this name."""
        return name in self._table.column_names

    def words(self, name: str) -> Words:
        """Return the column as `Words`."""
        if name not in self._words:
            self._words[name] = self._take_words(name)
        return self._words[name]

    def _take_words(self, name: str) -> Words:
        column = self._flat(name)
        if column is None:
            return Words(np.zeros(0, np.int32), ())
        if not hasattr(column, "dictionary"):
            column = column.dictionary_encode()
        texts, indices = column.dictionary.to_pylist(), column.indices
        if indices.null_count:
            indices, texts = indices.fill_null(len(texts)), [*texts, None]
        codes = indices.to_numpy(zero_copy_only=False)
        if len(texts) > len(codes):  # so many that no row uses would make too many possible keys of several columns
            used, codes = np.unique(codes, return_inverse=True)
            texts = [texts[at] for at in used.tolist()]
        # A dictionary may hold a text twice, or one that no row uses.
        values = tuple("" if text is None else text for text in texts)
        distinct = tuple(dict.fromkeys(values))
        if len(distinct) < len(values):
            place = {value: at for at, value in enumerate(distinct)}
            codes = np.array([place[value] for value in values], np.int32)[codes]
        return Words(codes.astype(np.int32, copy=False), distinct or ("",))

    def numbers(self, name: str) -> Numbers:
        """Return a column of whole numbers, or of times in microseconds; `NEVER` for null."""
        import pyarrow as pa

        column = self._flat(name)
        if column is None:
            return np.zeros(0, np.int64)
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        if column.null_count:
            column = column.cast(pa.int64()).fill_null(NEVER)
        found: Numbers = column.to_numpy(zero_copy_only=False)
        return found.astype(np.int64, copy=False)

    def computed(self, name: str, key: bytes, compute: Callable[[], Numbers]) -> Numbers:
        """Return numbers that are computed from the rows under a key, once for each `name` and `key`."""
        if (name, key) not in self._computed:
            self._computed[name, key] = compute()
        return self._computed[name, key]

    def booleans(self, name: str) -> Mask:
        """Return a column of booleans."""
        column = self._flat(name)
        if column is None:
            return np.zeros(0, bool)
        found: Mask = column.to_numpy(zero_copy_only=False)
        return found.astype(bool, copy=False)

    def texts(self, name: str) -> Any:
        """Return a text column as one Arrow array; None if the table has no rows."""
        return self._flat(name)

    def some(self, name: str, rows: Mask) -> list[str]:
        """Return a text column as a list, restricted to the rows under a mask."""
        column = self._flat(name)
        return [] if column is None else list(column.filter(rows).to_pylist())

    def taken(self, name: str, places: Numbers) -> Any:
        """Return a column's values in the rows at these indexes, as an Arrow array."""
        import pyarrow as pa

        column = self._flat(name)
        return pa.array([], pa.string()) if column is None else column.take(pa.array(places))

    def by(self, *names: str) -> Iterator[tuple[tuple[str, ...], Numbers]]:
        """Yield each combination of words that occurs in these columns, with the indexes of its rows."""
        words = [self.words(name) for name in names]
        code = np.zeros(self.rows, np.int64)
        for column in words:
            code = code * column.size + column.codes
        for one in np.unique(code):
            rows = np.flatnonzero(code == one)
            yield tuple(column.values[column.codes[rows[0]]] for column in words), rows

    def _flat(self, name: str) -> Any:
        """Return the column as a single chunk; None if it has no rows."""
        column = self._table[name]
        if not self.rows:
            return None
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def constant(text: str, rows: int) -> Words:
    """Return a column with one text in every row."""
    return Words(np.zeros(rows, np.int32), (text,))


def with_texts(table: pa.Table) -> pa.Table:
    """Return the table with its dictionary columns converted to plain text columns."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def grouped(table: pa.Table, keys: Sequence[str], sums: Sequence[tuple[str, str]]) -> pa.Table:
    """Return a row for each combination of `keys`, with the columns `sums`, given as (name, function), aggregated.

    Columns keep their names, and sums of whole numbers wrap around.
    """
    # The rows of an outer join may have words of several dictionaries, which Arrow does not group by.
    made = table.unify_dictionaries().group_by([*keys], use_threads=False).aggregate([*sums])
    return made.rename_columns([*keys, *(name for name, _ in sums)])
