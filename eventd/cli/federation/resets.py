"""The output of `reset --dry-run` for a subscription or a callback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventd.text.plural import counted


def planned(answer: Mapping[str, Any], name: str, verb: str) -> str:
    """Return the sentence about a dry run of a reset. `verb` says what happens to repeated events, such as `run`."""
    more = "" if answer["countIsExact"] else "more than "
    again = f"{more}{counted(answer['again'], 'event')} would {verb} again"
    skipped = f"{more}{counted(answer['skipped'], 'event')} would be skipped"
    change = skipped if answer["to"] > answer["from"] else again
    letters = f"; {counted(answer['deadLetters'], 'dead letter')} would be deleted" if answer["deadLetters"] else ""
    return f"{name}: from position {answer['from']} to {answer['to']}: {change}{letters} (dry run)"
