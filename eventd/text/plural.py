"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return the number and the noun: `1 event`, `2,000 events`. `plural`: if not the noun with an `s`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
