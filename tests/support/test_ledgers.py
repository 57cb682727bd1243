"""What the campaign reads of two lakes."""

from __future__ import annotations

import shutil
from pathlib import Path

from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.support.campaign.ledgers import open_ledgers
from tests.support.lakes import ship


def test_a_ledger_that_only_the_damaged_lake_has_is_read_each_time(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    ship(connect(str(before)), 0, 2)
    shutil.copytree(before, after)
    ship(connect(str(after)), 0, 3, book=Ledger.RECEIPTS)
    for _ in range(2):
        with open_ledgers(before) as ledgers:
            ledgers.read("after", after)
            counts = [ledgers.column(f"SELECT count(*) FROM after.{name}") for name in ("events", "receipts")]
            assert counts == [[2], [3]]
