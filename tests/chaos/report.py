"""What a campaign ran, as JSON: for the page on reliability, and for a look back at a night."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.reliability.provenance import describe_run


class CampaignReport:
    """Counts over all seeds. `file` is written after each of them, so that a campaign that is killed leaves it."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._begun = datetime.now(UTC)
        self._run = describe_run()
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("runs", "axes", "faults", "requests", "idle", "load", "restores")
        }
        self._skipped: dict[str, str] = {}
        self._violations: list[dict[str, Any]] = []

    def add(self, section: str, counts: dict[str, int]) -> None:
        """Add to the counts of a section: runs, axes, faults, requests, idle, load or restores."""
        self._counts[section].update(counts)

    def skip(self, skipped: dict[str, str]) -> None:
        """Note the faults that this machine cannot have, with the reason."""
        self._skipped |= skipped

    def blame(self, lines: list[str], *, command: str, **about: Any) -> None:
        """Note the violations of one run, and the command that repeats it."""
        self._violations.append({"lines": lines, "repeat": command, **about})

    @property
    def kills(self) -> int:
        """The number of processes that were killed with -9 so far."""
        return self._counts["load"]["kills"]

    @property
    def failures(self) -> int:
        """The number of runs with violations."""
        return len(self._violations)

    def write(self) -> None:
        """Write the file, if one was asked for."""
        if self._file is None:
            return
        told = {
            "tool": "chaos",
            "begun": self._begun.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "run": self._run,
            **{name: dict(sorted(counts.items())) for name, counts in self._counts.items()},
            "skipped": self._skipped,
            "violations": self._violations,
        }
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(told, indent=2) + "\n")
        draft.replace(self._file)
