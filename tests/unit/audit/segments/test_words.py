"""A null in a column of words counts as an empty word, in tables with and without dictionaries."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns
from eventd.audit.segments.ledger_summaries import summarize
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import ledger_table


@pytest.mark.parametrize("algorithms", [["ed25519", None, None], [None, "ed25519", ""], [None, None]])
def test_a_word_that_is_null_is_empty_and_never_another_word(algorithms: list[str | None]) -> None:
    receipts = ledger_table(Ledger.RECEIPTS, [{"status": 200, "receipt_alg": one} for one in algorithms])
    signed = algorithms.count("ed25519")
    expected = {"": len(algorithms) - signed} | ({"ed25519": signed} if signed else {})
    assert summarize(Ledger.RECEIPTS, Columns(receipts), limit=0).algorithms == expected
    texts = receipts.set_column(0, "receipt_alg", receipts["receipt_alg"].cast(pa.string())).select([0])
    words = Columns(texts).words("receipt_alg")
    assert [words.values[code] for code in words.codes] == [one or "" for one in algorithms]


def test_words_that_no_row_uses_do_not_count() -> None:
    """A small file may have dictionaries of so many words that keys of several columns would not fit into a number."""
    many = pa.array([f"w{at}" for at in range(1 << 16)])
    column = pa.DictionaryArray.from_arrays(pa.array([9, None, 7, 9], pa.int32()), many)
    words = Columns(pa.table({"type": column})).words("type")
    assert [words.values[code] for code in words.codes] == ["w9", "", "w7", "w9"]
    assert words.size == 3
