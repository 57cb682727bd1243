"""The page on the simulation explains each kind of fault by a line as plans have it."""

from __future__ import annotations

import re
from typing import Final

import pytest

from eventd.simulation.faults.fault import LACKING, SQLITE, Fault, FaultKind
from tests.support.source import ROOT

PAGE: Final = (ROOT / "docs/operations/simulation.md").read_text()
EXAMPLES: Final = (
    Fault(0.494, FaultKind.KILL, "a", 0.064),
    Fault(0.494, FaultKind.AT_JOB, "b", 0.01, mode="power", number=45),
    Fault(0.494, FaultKind.RESTORE, "b", 0.737, mode="by command", amount=0.0833704),
    Fault(0.494, FaultKind.WALL, "b", 0.819, "a", "drop", amount=1),
    Fault(0.494, FaultKind.CUT, "c", 0.974, "client of c", amount=0.02),
    Fault(0.494, FaultKind.REPLAY, "a", 0.0, "b", "cut", number=7),
)


def test_each_kind_of_fault_of_nodes_on_sqlite_is_explained() -> None:
    lines = dict(re.findall(r"^\| `([a-z ]+)` \| `([^`]* for [0-9.]+ s)` \|", PAGE, re.MULTILINE))
    assert {*lines} == {*FaultKind} - {*LACKING[SQLITE]}
    assert all(line.startswith(f"{kind} ") for kind, line in lines.items())


@pytest.mark.parametrize("fault", EXAMPLES, ids=lambda fault: fault.kind)
def test_the_lines_of_the_page_are_those_that_a_plan_prints(fault: Fault) -> None:
    assert f"| `{fault.kind}` | `{str(fault).removeprefix('0.494 s ')}` |" in PAGE
