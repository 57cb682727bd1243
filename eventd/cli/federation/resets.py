"""What `reset --dry-run` of a subscription or a callback says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventd.text.plural import counted


def planned(answer: Mapping[str, Any], name: str, verb: str) -> str:
    """Return what a dry run of a reset says: `verb` is what happens to events once more."""
    more = "" if answer["countIsExact"] else "more than "
    again = f"{more}{counted(answer['again'], 'event')} would {verb} again"
    skipped = f"{more}{counted(answer['skipped'], 'event')} would be skipped"
    change = skipped if answer["to"] > answer["from"] else again
    letters = f"; {counted(answer['deadLetters'], 'dead letter')} would be deleted" if answer["deadLetters"] else ""
    return f"{name}: from position {answer['from']} to {answer['to']}: {change}{letters} (dry run)"
