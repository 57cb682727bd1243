"""Writes the test vectors of both protocols: `python -m tests.vectors.generate`.

Every vector is one JSON file with all inputs (keys, receiver, clock, what the receiver knows, the request) and the
outcome an implementation must reach. `reason` is the precise cause, for one's own log; `code` is what is said aloud.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.vectors import accepted_v2, answers_v2, cases_v1, lines_v2, refused_v2

HERE = Path(__file__).parent


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(path below this directory, content) of every vector."""
    for case in cases_v1.cases():
        yield f"v1/{case['name']}.json", case
    for module in (accepted_v2, refused_v2, lines_v2, answers_v2):
        for case in module.cases():
            yield f"v2/{case['name']}.json", case


def text(case: dict[str, Any]) -> str:
    """A vector as its file holds it."""
    return json.dumps(case, indent=2, ensure_ascii=False) + "\n"


def write() -> None:
    """Write all vectors and remove files that are no longer made."""
    wanted = {HERE / path: text(case) for path, case in vectors()}
    for old in {*HERE.glob("v*/*.json")} - wanted.keys():
        old.unlink()
    for path, content in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write()
