"""Which resources a watch shows as deleted, and how it names them."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.cli.resources.listing import columns_of, has_several
from eventd.cli.resources.watching import Key, ended


def watched(name: str, created: str, generation: int = 1) -> tuple[Key, dict[str, Any]]:
    row = {"kind": "Topic", "metadata": {"name": name, "creationTimestamp": created, "generation": generation}}
    return ("topic.routerd.net/v1alpha1", "Topic", name), row


def test_a_resource_that_was_deleted_and_created_again_between_two_reads_was_deleted() -> None:
    first = "2026-11-29T12:00:00.000001Z"
    before = dict([watched("gone", first), watched("again", first), watched("changed", first)])
    after = dict([watched("again", "2026-11-29T12:00:00.000002Z"), watched("changed", first, 2), watched("new", first)])
    assert [name for _, _, name in ended(before, after)] == ["gone", "again"]


@pytest.mark.parametrize(
    ("kinds", "shown"), [(["topic"], "orders"), (["eg", "topic"], "topic/orders"), (["all"], "topic/orders")]
)
def test_names_of_several_kinds_are_shown_with_their_kind(kinds: list[str], shown: str) -> None:
    _, row = watched("orders", "2026-11-29T12:00:00Z")
    columns = columns_of("Topic", with_kind=has_several(kinds))
    assert (columns[0].header, columns[0].cell(row)) == ("NAME", shown)
