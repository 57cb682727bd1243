"""The campaign in signed histories: a lake is damaged in each of its groups, and one audit finds exactly that."""

from __future__ import annotations

from pathlib import Path

from tests.support.campaign.page import in_signed_histories
from tests.support.campaign.signed_lake import complaints_of_signed
from tests.support.fresh import template
from tests.support.source import ROOT


async def test_each_damage_of_a_signed_history_is_found_and_nothing_else(tmp_path: Path) -> None:
    assert await complaints_of_signed(tmp_path, template()) == []


def test_the_page_lists_what_is_found_in_signed_histories() -> None:
    page = (ROOT / "docs" / "reference" / "audit-damage.md").read_text()
    assert f"\n\n{in_signed_histories()}\n\n" in page
