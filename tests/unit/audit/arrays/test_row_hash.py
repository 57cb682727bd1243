"""The hashes of rows are keyed in every column, so that no change can be chosen that keeps a sum."""

from __future__ import annotations

import numpy as np

from eventd.audit.arrays import row_hash
from eventd.audit.arrays.row_hash import outlines
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import columns_of, event_row


def test_the_word_that_stands_for_a_type_differs_from_key_to_key() -> None:
    one, other = (row_hash._word_hash("client.seen", key) for key in (b"a" * 16, b"b" * 16))
    assert one != other == row_hash._word_hash("client.seen", b"b" * 16)


def test_rows_that_differ_in_one_column_have_other_hashes_under_every_key() -> None:
    rows = columns_of(Ledger.EVENTS, [event_row(1), event_row(1, type="u"), event_row(1, bytes=1), event_row(2)])
    for key in (b"", b"a" * 16, b"b" * 16):
        assert len(np.unique(outlines(rows, key))) == 4
