"""`routerd-eventd simulate`: its summary, its exit status, and a line for each violation that repeats it."""

from __future__ import annotations

import _sqlite3
import errno
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from eventd.cli.program.exits import ExitCode, exit_code
from eventd.cli.routerd_eventd_commands import app
from eventd.cli.simulate import player, processes, simulate
from eventd.cli.simulate.processes import play_in_processes
from eventd.errors import CheckFailed, EventdError
from eventd.simulation import campaign, run, shrinking
from eventd.simulation.campaign import CampaignResult
from eventd.simulation.checks.violation import Violation
from eventd.simulation.plan import SimulationPlan
from eventd.simulation.report import CampaignReport
from eventd.simulation.run import SimulationResult
from eventd.simulation.world import sqlite_library
from tests.seeded_bugs.log_bugs import forget_ids
from tests.support.source import ROOT

SEED = "413"
"""A short run of a pair with little load, in which an event is sent twice."""


@pytest.fixture(autouse=True)
def any_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not start the tests again with a fixed hash seed."""
    monkeypatch.setattr(simulate, "fix_hash_seed", lambda: None)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *words])


class PlayedSeed(NamedTuple):
    """What a campaign of one run printed, its report, and the result of the run."""

    done: Result
    report: Path
    result: SimulationResult


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> PlayedSeed:
    """The first of the seeds that two processes share in another test."""
    results: list[SimulationResult] = []

    def play(*words: Any, **more: Any) -> SimulationResult:
        results.append(run.play(*words, **more))
        return results[-1]

    file = tmp_path_factory.mktemp("played") / "campaign.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "fix_hash_seed", lambda: None)
        patch.setattr(campaign, "play", play)
        done = call("--from", "34", "--seeds", "1", "--report", str(file))
    (result,) = results
    return PlayedSeed(done, file, result)


def test_runs_without_a_violation_end_with_a_summary(played: PlayedSeed) -> None:
    done = played.done
    assert done.exit_code == ExitCode.OK
    assert done.stdout.startswith("1 run, 0 with violations, 0 too idle to count; ")
    assert "\nrare branches: " in done.stdout
    assert "\nnever taken: " not in done.stdout, "one run does not take them all"


def test_a_violation_is_a_line_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_ids(monkeypatch)
    done = call("--from", SEED, "--seeds", "1")
    assert isinstance(done.exception, CheckFailed)
    assert exit_code(done.exception) == ExitCode.CHECK_FAILED
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"seed {SEED}: V5 at ")
    assert first.endswith(f"; routerd-eventd simulate --seed {SEED} --trace")


def test_one_seed_shows_its_plan_and_with_trace_each_step() -> None:
    plan = call("--seed", SEED).stdout.splitlines()
    trace = call("--seed", SEED, "--trace").stdout.splitlines()
    assert plan[0].startswith(f"seed {SEED}: ")
    assert len(trace) > 1000
    assert set(plan) <= set(trace), "the same plan, and the same verdict with the same sum"


def test_a_plan_that_fails_is_shrunk_to_a_file_that_can_be_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    forget_ids(monkeypatch)
    monkeypatch.setattr(shrinking, "play", _fails_with_two_faults)
    Path(f"plan-{SEED}.json").write_text("another plan")
    file = f"plan-{SEED}-2.json"
    assert f"{file}: 2 nodes, 0 steps of load, 2 faults" in call("--seed", SEED, "--shrink").stdout
    done = call("--plan", file)
    assert done.stdout.startswith(f"seed {SEED}: pair, ")
    assert len(done.stdout.splitlines()) == 4
    assert Path(f"plan-{SEED}.json").read_text() == "another plan", "a file that exists is left alone"


def _fails_with_two_faults(plan: SimulationPlan, *_: object, **_more: object) -> SimulationResult:
    violations = [Violation("V5", "a", "", 0.0)] if len(plan.faults) > 1 else []
    return SimulationResult(plan.seed, violations)


def test_a_file_without_a_plan_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    done = call("--plan", str(tmp_path / "plan.json"))
    assert exit_code(done.exception) == ExitCode.ERROR  # type: ignore[arg-type]
    assert "cannot be read as a plan" in str(done.exception)


def test_processes_share_the_runs_and_a_report_is_continued(played: PlayedSeed, tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    shutil.copy(played.report, file)
    done = call("--from", "34", "--seeds", "3", "--jobs", "2", "-o", "json", "--report", str(file))
    assert (done.exit_code, done.stderr) == (ExitCode.OK, "")
    assert json.loads(done.stdout) == json.loads(file.read_bytes())
    found = json.loads(done.stdout)["result"]
    assert (found["seeds"], found["runs"], found["violations"]) == ([[34, 36]], 3, [])
    assert sum(found["branches"].values()) > 0


@pytest.mark.parametrize(
    "words", [("-o", "json"), ("--report", "f.json"), ("--jobs", "1"), ("--seeds", "50"), ("--from", "1")]
)
def test_one_seed_takes_no_options_of_many(words: tuple[str, ...]) -> None:
    done = call("--seed", "2", *words)
    assert done.exit_code == ExitCode.USAGE
    assert f"leave out {words[0]}" in " ".join(done.stderr.split())


def test_a_template_chooses_members_of_the_result(played: PlayedSeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "play", lambda *_, **__: played.result)
    done = call("--from", "34", "--seeds", "1", "-o", "jsonpath={.runs} {.sums}")
    assert done.stdout == f'1 {{"34": "{played.result.sum:08x}"}}\n'


@pytest.mark.parametrize("form", ["wide", "name"])
def test_a_form_of_lists_is_refused_with_those_that_there_are(form: str) -> None:
    done = call("-o", form)
    assert done.exit_code == ExitCode.USAGE
    assert f"'{form}' is not one of table, json, yaml, jsonpath=TEMPLATE" in " ".join(done.stderr.split())


def test_a_run_that_violates_nothing_is_not_shrunk(played: PlayedSeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "play", lambda *_, **__: played.result)
    done = call("--seed", "34", "--shrink")
    assert done.exit_code == ExitCode.OK
    assert done.stderr == "nothing to shrink: the run violates nothing\n"
    assert done.stdout.endswith(" acknowledged; no violation\n")


def test_a_file_that_is_missing_is_named_as_it_was_given(tmp_path: Path) -> None:
    plan, report = str(tmp_path / "plan.json"), str(tmp_path / "no" / "campaign.json")
    assert str(call("--plan", plan).exception).startswith(f"{plan} cannot be read: No such file or directory (")
    refused = str(call("--report", report).exception)
    assert refused == f"the report {report} cannot be written: No such file or directory (create its folder first)"


@pytest.mark.parametrize("file", [Path("/dev/full"), Path("/")])
def test_a_report_is_a_file(file: Path) -> None:
    refused = str(call("--report", str(file)).exception)
    assert refused == f"{file} is not a file: a report is read and replaced as a whole (name another file)"


def test_an_empty_file_becomes_a_report(played: PlayedSeed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaign, "play", lambda *_, **__: played.result)
    (tmp_path / "campaign.json").touch()
    assert call("--from", "34", "--seeds", "1", "--report", str(tmp_path / "campaign.json")).exit_code == ExitCode.OK
    assert json.loads((tmp_path / "campaign.json").read_bytes())["result"]["runs"] == 1


def test_a_report_with_other_seeds_than_runs_is_refused(played: PlayedSeed, tmp_path: Path) -> None:
    report = json.loads(played.report.read_bytes())
    report["result"]["runs"] = -5
    (tmp_path / "campaign.json").write_text(json.dumps(report))
    assert "its number of runs is not that of its seeds" in str(
        call("--report", str(tmp_path / "campaign.json")).exception
    )


def test_whether_a_plan_can_be_written_shows_before_a_smaller_one_is_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "play", _fails_with_two_faults)
    monkeypatch.setattr(shrinking, "play", None)
    monkeypatch.setattr(simulate, "_created", _raise_read_only)
    refused = str(call("--seed", SEED, "--shrink").exception)
    assert refused.startswith(f"plan-{SEED}.json cannot be written in {tmp_path}: Read-only file system")


def _raise_read_only(*_: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_search_that_is_interrupted_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "play", _fails_with_two_faults)
    monkeypatch.setattr(shrinking, "play", interrupt)
    call("--seed", SEED, "--shrink")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--from", "34", "--seeds", "1"), ("--seed", "34")], ids=["many", "one"])
def test_runs_that_are_all_too_idle_prove_nothing(
    played: PlayedSeed, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is judged anew, as if twice its load had to be acknowledged, and not played again."""
    assert played.result.counts
    monkeypatch.setattr(campaign, "play", lambda *_, **__: played.result)
    monkeypatch.setattr(run, "LEAST_ACKNOWLEDGED", 2)
    done = call(*words)
    assert isinstance(done.exception, CheckFailed)
    assert "too idle to count" in str(done.exception)


def test_a_python_that_cannot_simulate_is_an_error_and_not_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite3, "__file__", "/dev/null")
    sqlite_library.load_library.cache_clear()
    done = call("--jobs", "2")
    assert isinstance(done.exception, sqlite_library.SimulationUnavailable)
    assert exit_code(done.exception) == ExitCode.ERROR


def test_a_process_without_a_result_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EventdError, match=r"for seeds (1 and 3|2) ended with status 1 and without a result"):
        list(play_in_processes([1, 2, 3], 2, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_answered_all_its_seeds_may_end_before_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(released := tmp_path / "released")
    script = f'read seed; test "$seed" = 1 || read go < {released}; echo "$seed"'
    started = list[subprocess.Popen[bytes]]()

    def start_script(*_: object) -> processes._Player:
        started.append(subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return processes._Player(started[-1])

    monkeypatch.setattr(processes, "_start", start_script)
    answers = play_in_processes([1, 2], 2, tmp_path)
    assert next(answers) == b"1"
    started[0].wait()
    released.write_text("go\n")
    assert list(answers) == [b"2"]


def test_no_interrupt_ends_a_process_that_plays_seeds_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It interrupts itself before it could ignore that."""

    def start_script(*_: object) -> processes._Player:
        script = 'read seed; kill -INT $$; echo "$seed"'
        pipe = subprocess.PIPE
        return processes._Player(subprocess.Popen(["/bin/sh", "-c", script], stdin=pipe, stdout=pipe))

    monkeypatch.setattr(processes, "_start", start_script)
    assert list(play_in_processes([1], 1, tmp_path)) == [b"1"]


def test_an_interrupted_campaign_leaves_no_process_and_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = list[subprocess.Popen[bytes]]()
    start = processes._start

    def start_noted(folder: str, server: None) -> processes._Player:
        player = start(folder, server)
        started.append(player.process)
        return player

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "_start", start_noted)
    monkeypatch.setattr(selectors.DefaultSelector, "select", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(play_in_processes([1], 1, tmp_path))
    assert [process.returncode for process in started] == [-signal.SIGTERM]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [True, False], ids=["report", "no report"])
def test_an_interrupted_campaign_says_what_is_kept_and_how_it_continues(
    kept: bool, played: PlayedSeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed was played, and its result is added; Ctrl-C comes while the report is written, and again later."""
    left = list[str]()
    seen = list[CampaignResult]()
    add = CampaignReport.add

    def play(*_: object, **__: object) -> SimulationResult:
        if seen:
            raise AssertionError("played on after Ctrl-C")
        return played.result

    def interrupt(report: CampaignReport, result: SimulationResult) -> None:
        signal.raise_signal(signal.SIGINT)
        add(report, result)
        seen.append(report.result)

    monkeypatch.setattr(campaign, "play", play)
    monkeypatch.setattr(CampaignReport, "add", interrupt)
    monkeypatch.setattr(simulate, "_leave", lambda _: left.append("left"))
    file = tmp_path / "campaign.json"
    words = ["--from", "34", "--seeds", "2", *(("--report", str(file)) if kept else ())]
    done = call(*words)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 130
    goes_on = "the same command continues the campaign" if kept else "with --report FILE a campaign can be continued"
    what = f": the file {file} has 1 run" if kept else " after 1 run, of which nothing is kept"
    assert done.stderr == f"interrupted{what}; {goes_on}\n"
    assert left == ["left"]
    if kept:
        assert json.loads(file.read_bytes())["result"]["seeds"] == [[34, 34]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_loses_the_exception_of_a_signal_is_the_last_one_and_is_not_added(
    number: signal.Signals, played: PlayedSeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the collector does, if a finalizer raises it."""
    left = list[str]()

    def play(*_: object, **__: object) -> SimulationResult:
        with suppress(KeyboardInterrupt, SystemExit):
            signal.raise_signal(number)
        return played.result

    monkeypatch.setattr(campaign, "play", play)
    monkeypatch.setattr(simulate, "_leave", lambda _: left.append("left"))
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    done = call("--from", "34", "--seeds", "3")
    assert done.exit_code == 128 + number
    assert done.stderr.startswith("interrupted after 0 runs, ")
    assert left == ["left"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_process_that_plays_seeds_leaves_ctrl_c_to_the_one_that_has_started_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "stdin", StringIO())
    try:
        player.main(tmp_path, on_postgres=False)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("on_postgres", [False, True], ids=["file", "postgres"])
def test_a_process_that_plays_seeds_ends_quietly_if_the_one_that_has_started_it_was_killed(
    on_postgres: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(campaign, "play_seeds", lambda *_: [SimulationResult(1)])
    monkeypatch.setattr(sys, "stdin", StringIO())
    try:
        with os.fdopen(write, "w") as out:
            monkeypatch.setattr(sys, "stdout", out)
            player.main(tmp_path, on_postgres=on_postgres)
    finally:
        monkeypatch.undo()
        signal.signal(signal.SIGINT, before)


def test_a_python_that_ignores_the_environment_is_refused() -> None:
    command = [sys.executable, "-E", "-m", "eventd.cli.routerd_eventd", "simulate", "--seeds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.ERROR
    assert "PYTHONHASHSEED" in done.stderr


def test_a_trace_needs_a_seed() -> None:
    done = call("--trace")
    assert done.exit_code == ExitCode.USAGE
    assert "name it with --seed or --plan" in " ".join(done.stderr.split())
