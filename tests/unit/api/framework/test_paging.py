"""Pages of lists."""

from __future__ import annotations

import pytest

from eventd.api.framework.paging import cut_page


@pytest.mark.parametrize(
    ("found", "shown", "following"), [("", "", None), ("ab", "ab", None), ("abc", "ab", "after b"), ("a", "a", None)]
)
def test_a_page_names_the_next_one_only_if_there_is_one(found: str, shown: str, following: str | None) -> None:
    assert cut_page(found, 2, lambda entry: f"after {entry}") == (shown, following)
