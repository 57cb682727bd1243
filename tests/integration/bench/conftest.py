"""The nodes of a measurement, started in milliseconds: by the fork server, over a file with the current schema."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eventd.runtime.clock import SystemClock
from tests.support.fork_server import spawn
from tests.support.fresh import make_current, template

_SINK = "import runpy, eventd.cli; runpy.run_module({!r}, run_name='__main__')"
"""The fork server forks this for the process that plays the peers."""


class Forking:
    """Takes the place of `subprocess` in a module that starts nodes; `tests/acceptance/test_bench.py` starts real ones.

    A node receives its settings, and the other variables of this process: a fork cannot obey those that a new
    interpreter reads at its start.
    """

    DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
        """Start a node, or the sink of `tests.bench.growth_peers`."""
        program, option, code, *arguments = command
        if option == "-m":
            option, code = "-c", _SINK.format(code)
        elif not (file := Path(how["cwd"]) / "eventd.db").exists() and "--migrate" not in arguments:
            make_current(f"sqlite:///{file}", now=SystemClock().now())
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVENTD_")}
        settings = {name: value for name, value in env.items() if name.startswith("EVENTD_")}
        return spawn([program, option, code, *arguments], env=own | settings, **how)


@pytest.fixture(scope="module", autouse=True)
def _forking() -> Iterator[None]:
    template()  # in the folder for temporary files of this process, which tests replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventd.bench.nodes.subprocess", Forking)
        patch.setattr("tests.bench.growth_peers.Popen", Forking.Popen)
        yield
