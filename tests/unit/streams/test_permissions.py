"""Permissions: what a token allows, and how long it takes to find out."""

from __future__ import annotations

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.permissions import MOST, BadPermission, Permission, StreamAction, matches, read_permissions

SHORT = st.text("ab/*", max_size=8)


@given(SHORT, st.text("ab/", max_size=10))
def test_a_star_is_any_text(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(translate(pattern), text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "allowed"),
    [
        ("stream:t/*", "stream:t/n/s", True),
        ("stream:T/*", "stream:t/n/s", False),
        ("*", "", True),
        ("a*a", "a", False),
        ("stream:t/n/?", "stream:t/n/s", False),
        ("stream:t/[n]/s", "stream:t/n/s", False),
    ],
)
def test_nothing_else_is_special(pattern: str, text: str, allowed: bool) -> None:
    assert matches(pattern, text) is allowed


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    assert not matches("*a" * 4000 + "b", "a" * 16000)
    assert matches("*a" * 4000, "a" * 16000)


def test_read() -> None:
    found = read_permissions(["stream.publish:stream:t/*", "rbac.view:x", "cache.read:cache:t/n/c"])
    assert found == (Permission(StreamAction.PUBLISH, "stream:t/*"), Permission(StreamAction.READ, "cache:t/n/c"))
    assert found[0].allows(StreamAction.PUBLISH, "stream:t/n/s")
    assert not found[0].allows(StreamAction.SUBSCRIBE, "stream:t/n/s")


@pytest.mark.parametrize("text", ["stream.read:stream:t/*", "stream.publish", "", ":x", "STREAM.PUBLISH:x"])
def test_an_unknown_action_refuses_all(text: str) -> None:
    with pytest.raises(BadPermission, match="unknown permission"):
        read_permissions(["stream.publish:stream:t/*", text])


def test_number_of_permissions() -> None:
    assert len(read_permissions(["cache.read:*"] * MOST)) == MOST
    with pytest.raises(BadPermission, match="more than 1000"):
        read_permissions(["tenant.manage:*"] * (MOST + 1))
