"""Bounds the answers in which a peer reports a range of its log: each must get further, and they may be so many."""

from __future__ import annotations

from typing import Final

from eventd.errors import Conflict

MOST_PAGES: Final = 10_000
"""Maximum number of answers about one range: an honest peer works for about a second on each, so some hours of work."""


def advance(peer: str, at: int, next_one: int | None, upto: int, page: int) -> int:
    """Return up to which position a peer has answered: `next_one`, or `upto` if that is None, as in a last answer.

    It was the answer number `page`, from 1 on, about a range of which `at` was reached. Raises `Conflict` unless the
    position is in `(at, upto]`, and beyond `MOST_PAGES`: otherwise the peer could be queried for ever.
    """
    if next_one is None:
        return upto
    if not at < next_one <= upto:
        raise Conflict(f"an answer of {peer} ends at position {next_one}; it must be after {at}, and at most {upto}")
    if page >= MOST_PAGES and next_one < upto:
        raise Conflict(f"{peer} has not reported all that it was asked for in {MOST_PAGES} answers")
    return next_one
