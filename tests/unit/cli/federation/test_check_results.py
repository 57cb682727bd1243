"""What a check result says of the node whose tree has an event."""

from __future__ import annotations

import pytest

from eventd.cli.federation.check_results import describe_check, show_check


@pytest.mark.parametrize(
    ("history", "admitted_by", "shown", "described"),
    [
        ("verified", "a", "verified", "verified: admitted by a"),
        ("verified", "hub", "verified (hub)", "verified: admitted by hub; not proven to come from a"),
        ("unproven", "hub", "unproven", "unproven: admitted by hub according to its path"),
        ("verified", None, "verified", "verified"),
    ],
)
def test_a_verified_event_names_the_node_whose_tree_has_it(
    history: str, admitted_by: str | None, shown: str, described: str
) -> None:
    event = {"sourceNode": "a", "history": history, "admittedBy": admitted_by}
    assert show_check(event) == shown
    assert describe_check(event) == described
