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
