"""Bounds of a scan of an index by name."""

from __future__ import annotations


def beyond(after: str, first: str) -> str:
    """Return the inclusive lower bound of a scan of the names that are after `after` and not before `first`.

    Given two bounds, SQLite may start its index scan at the smaller one. No name sorts before `!`.
    """
    return max(first, f"{after}!") if after else first
