"""The description of the machine that accompanies the figures."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eventd.bench.machine import machine


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system holds no process to a core")
def test_a_process_that_is_held_to_one_core_measures_a_machine_of_one_core() -> None:
    told = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from eventd.bench.machine import machine"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{told}; print(machine(None)['cores'])"], capture_output=True, text=True
    )
    assert done.stdout == "1\n", done.stderr
    assert machine(None)["cores"] == len(os.sched_getaffinity(0))
    assert machine(None)["processor"]
