"""Stored results, one line of JSON each, and the comparison of a new result with those of the same measurement."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eventd.errors import Invalid, NotFound

COMPARED = ("events_per_second", "p50_ms", "p95_ms", "p99_ms")
MACHINE = ("system", "processor", "cores")
"""The fields that must be equal for two results to be from the same machine; the load of the machine may differ."""
MOST = 5
"""Maximum number of latest results of which the median is compared with a new result."""


def read_kept(file: Path) -> list[dict[str, Any]]:
    """Return all results of a file in its order, oldest first.

    Raises `NotFound`, and `Invalid` for a file that cannot be read or a line that is not a result.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file", hint="--save FILE creates one") from None
    except OSError as error:
        raise Invalid(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{file}: is not text", hint="name a file that --save wrote") from None
    return [_read(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        kept = json.loads(line)
        complete = all(isinstance(kept[name], dict) for name in ("settings", "machine")) and isinstance(
            kept["bench"], str
        )
        complete = complete and all(isinstance(kept[name], int | float) for name in COMPARED)
        complete = complete and isinstance(kept["verified"], bool) and isinstance(kept["time"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        complete = False
    if not complete:
        raise Invalid(f"{file}:{number}: is not a result of a measurement", hint="name a file that --save wrote")
    found: dict[str, Any] = kept
    return found


def keep(file: Path, result: Mapping[str, Any]) -> None:
    """Append a result to a file, which is created if it is missing."""
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{text}\n")


def alike(kept: Sequence[dict[str, Any]], result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return those of `kept` that are verified and have the measurement, the settings and the machine of `result`."""
    return [one for one in kept if one["verified"] and _conditions(one) == _conditions(result)]


def _conditions(result: Mapping[str, Any]) -> list[Any]:
    machine = result["machine"]
    return [result["bench"], result["settings"], *(machine.get(name) for name in MACHINE)]


def compare(kept: Sequence[dict[str, Any]], result: Mapping[str, Any]) -> dict[str, float] | None:
    """Return by name the ratio of each compared figure to the median of the latest results like it; None without any.

    `runs` is the number of these results, at most `MOST`. A figure whose median is 0 is left out."""
    last = alike(kept, result)[-MOST:]
    if not last:
        return None
    medians = {name: statistics.median(one[name] for one in last) for name in COMPARED}
    ratios = {name: round(result[name] / median, 3) for name, median in medians.items() if median}
    return {"runs": len(last), **ratios}
