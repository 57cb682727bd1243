"""The window of a batch: how many records cannot fill it, so that they need not be read before it closes by time."""

from __future__ import annotations

import pytest

from eventd.egress.callbacks.batches import RECORD_BYTES, BatchLimits, ItemWindow
from eventd.egress.callbacks.formats import CallbackItem


@pytest.mark.parametrize(
    ("limits", "sizes", "quiet"),
    [
        (BatchLimits(100, 1 << 20, 1), [100], 98),
        (BatchLimits(1, 1 << 20, 1), [100], 0),
        (BatchLimits(100, 10 * RECORD_BYTES, 1), [RECORD_BYTES], 8),
        (BatchLimits(100, 10 * RECORD_BYTES, 1), [5 * RECORD_BYTES], 0),
        (BatchLimits(100, 200, 1), [100], 0),
    ],
    ids=["count", "full", "bytes", "large records", "few bytes"],
)
def test_a_window_stays_quiet_as_long_as_nothing_can_fill_it(limits: BatchLimits, sizes: list[int], quiet: int) -> None:
    items = [CallbackItem(at, at, 0, f"e{at}", f"m{at}", "x" * size) for at, size in enumerate(sizes, 1)]
    assert ItemWindow(limits, items).quiet == quiet
