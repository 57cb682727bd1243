"""Writes the test vectors of both protocols and of the verifiable history: `python -m tests.vectors.generate`.

One file per subject holds a vector per line: JSON with all inputs (keys, receiver, clock, the receiver's state, the
request) and the outcome that an implementation must reach. `reason` is the precise cause, for the receiver's own log;
`code` is the cause in the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vectors import accepted_v2, answers_v2, cases_v1, histories_v2, history, lines_v2, refused_v2

HERE = Path(__file__).parent
SUBJECTS = {
    "v1": cases_v1,
    "v2-accepted": accepted_v2,
    "v2-refused": refused_v2,
    "v2-lines": lines_v2,
    "v2-history": histories_v2,
    "v2-answers": answers_v2,
    "history": history,
}

Vector = dict[str, Any]


def vectors() -> dict[str, list[Vector]]:
    """Return the vectors of each file, by its name below this directory."""
    return {f"{name}.jsonl": list(module.cases()) for name, module in SUBJECTS.items()}


def text(cases: list[Vector]) -> str:
    """Return the text of a file of vectors as it is committed."""
    return "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)


def write() -> None:
    """Write all files of vectors."""
    for name, cases in vectors().items():
        (HERE / name).write_text(text(cases), encoding="utf-8")


if __name__ == "__main__":
    write()
