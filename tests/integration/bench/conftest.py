"""Runs `routerctl bench` on nodes that start in milliseconds: by the fork server, over a file of today's schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventd.cli.routerctl import main
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


SEVEN = {"events", "seconds", "events_per_second", "p50_ms", "p99_ms", "verified", "settings"}


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Bench = Callable[..., Ended]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Bench:
    """Runs `routerctl bench` as its entry point does."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("EVENTD_SERVER", "http://127.0.0.1:1")  # what it does not go by

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["routerctl", "bench", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left"
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run


def told(ended: Ended) -> dict[str, Any]:
    """The one JSON object of a run that went well."""
    assert ended.code == 0, ended.err
    result: dict[str, Any] = json.loads(ended.out)
    assert set(result) >= SEVEN
    assert result["verified"] is True
    assert result["problems"] == []
    assert result["seconds"] > 0
    assert result["events_per_second"] > 0
    assert 0 < result["p50_ms"] <= result["p99_ms"]
    return result
