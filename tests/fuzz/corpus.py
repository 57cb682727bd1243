"""The corpus of a target: one line of JSON for each input, and what is dropped of it because it adds nothing."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from tests.fuzz.target import FuzzTarget

FOLDER: Final = Path(__file__).parent / "corpora"
ROOT: Final = Path(__file__).parents[2]
MOST_OF_ONE: Final = 48 << 10
"""Bytes that the inputs of one corpus without a name may have together."""
_TRACED: Final = (f"{ROOT}/eventd/", f"{ROOT}/federation/")


class CorpusInput(NamedTuple):
    """An input; `finding` names the defect that it once found, and keeps it in the corpus for ever."""

    data: bytes
    finding: str = ""


def read_corpus(name: str) -> list[CorpusInput]:
    """Return the inputs of a target, none without a corpus."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text().splitlines())
    return [CorpusInput(base64.b64decode(line["input"]), line.get("finding", "")) for line in lines]


def write_corpus(name: str, inputs: Iterable[CorpusInput]) -> None:
    """Write the inputs of a target: findings first, then the others, the short ones first."""
    ordered = sorted(set(inputs), key=lambda one: (not one.finding, one.finding, len(one.data), one.data))
    lines = [json.dumps(_line(one), separators=(",", ":")) for one in ordered]
    (FOLDER / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _line(one: CorpusInput) -> dict[str, str]:
    text = base64.b64encode(one.data).decode()
    return {"finding": one.finding, "input": text} if one.finding else {"input": text}


Edge = tuple[CodeType, int, int]
"""A step from one line of a function to another."""


class _Edges:
    """Notes the edges of the product's code, as a trace function."""

    def __init__(self) -> None:
        self.found: set[Edge] = set()
        self._last: dict[int, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(_TRACED):
                return None
            self._last[id(frame)] = -1
        elif event == "line":
            key = id(frame)
            self.found.add((frame.f_code, self._last.get(key, -1), frame.f_lineno))
            self._last[key] = frame.f_lineno
        elif event == "return":
            self._last.pop(id(frame), None)
        return self


def edges_of(target: FuzzTarget, data: bytes) -> set[Edge]:
    """Return the edges that an input goes through. Raises what the check raises."""
    edges, before = _Edges(), sys.gettrace()
    sys.settrace(edges)
    try:
        target.check(data)
    finally:
        sys.settrace(before)
    return edges.found


def minimised(target: FuzzTarget, inputs: Iterable[CorpusInput]) -> tuple[list[CorpusInput], int]:
    """Return the inputs without those that go through no edge of their own, and the number of all edges.

    Findings stay. Of the others, the short ones are taken first.
    """
    kept: list[CorpusInput] = []
    seen: set[Edge] = set()
    size = 0
    for one in sorted(set(inputs), key=lambda one: (not one.finding, len(one.data), one.data)):
        edges = edges_of(target, one.data)
        if one.finding or (not edges <= seen and size + len(one.data) <= MOST_OF_ONE):
            kept.append(one)
            size += 0 if one.finding else len(one.data)
            seen |= edges
    return kept, len(seen)
