"""`routerd-eventd simulate`: plays the plans of seeds, and reports what does not hold."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventd.cli.simulate.postgres import CampaignServer, databases_on
from eventd.cli.simulate.processes import play_in_processes
from eventd.cli.simulate.signals import CampaignSignals, held_back
from eventd.cli.simulate.summary import summary_lines
from eventd.cli.terminal.output import DocumentFormat, Output
from eventd.errors import CheckFailed, EventdError, Invalid
from eventd.settings.environment import scratch_folder, unseeded_environment
from eventd.text.plural import counted

if TYPE_CHECKING:  # it loads the node
    from eventd.simulation.campaign import CampaignResult
    from eventd.simulation.plan import SimulationPlan
    from eventd.simulation.report import CampaignReport
    from eventd.simulation.run import SimulationResult
    from eventd.store.schema.scratch_databases import ScratchDatabases

MEMORY: Final = Path("/dev/shm")
"""Where the files of nodes are kept, unless TMPDIR says where: in memory, because the simulation is the disk."""


def run_seeds(
    first: int, seeds: int, *, jobs: int, output: DocumentFormat, file: Path | None = None, postgres: str = ""
) -> None:
    """Play the plans of `seeds` seeds from `first` on, in `jobs` processes. Raises `CheckFailed` for a violation.

    Without one, it raises `CheckFailed` too if no run was busy enough to count, or if many runs have never taken a rare
    branch. With `file`, the report in it is continued: seeds that it has are not played again. `postgres`: the URL of a
    server on which the nodes have their databases.
    """
    fix_hash_seed()
    printed = Output(output, headers=True, colour=False)
    from eventd.simulation.campaign import require_machine
    from eventd.simulation.report import CampaignReport

    require_machine()
    with CampaignSignals() as signals, _server(postgres) as server:
        report = CampaignReport.open(file, server.databases.version if server else "")
        found = report.result
        sums: dict[str, str] = {}
        left = [seed for seed in range(first, first + seeds) if not found.has(seed)]
        end = _add_results(report, left, jobs, server, sums, signals)
    if end is not None:
        print(_interrupted(found, file), file=sys.stderr, flush=True)
        if jobs == 1:
            _leave(end)  # Danger: what is left of a run in this process would log and warn as it unwinds
        raise end
    if printed.is_document:
        printed.value(report.to_object() if file is not None else found.to_object() | {"sums": sums})
    else:
        print("\n".join(summary_lines(found)))
    if found.failure:
        raise CheckFailed(found.failure, hint=found.hint)


def _add_results(
    report: CampaignReport,
    seeds: list[int],
    jobs: int,
    server: CampaignServer | None,
    sums: dict[str, str],
    signals: CampaignSignals,
) -> BaseException | None:
    """Play seeds, and add their results to the report and to `sums`, by seed; return what a signal has raised.

    A result is added as a whole, or not at all; that of a run that has lost the exception of a signal is not.
    """
    from eventd.simulation.campaign import failure_lines

    try:
        with closing(_results(seeds, jobs, server)) as results:
            for result in results:
                if signals.came is not None:
                    break
                with held_back(signal.SIGINT, signal.SIGTERM):
                    report.add(result)
                    sums[str(result.seed)] = f"{result.sum:08x}"
                    for line in failure_lines(result, " --postgres URL" if server else ""):
                        print(line, file=sys.stderr, flush=True)
    except (KeyboardInterrupt, SystemExit) as end:
        return end
    return signals.came


def _interrupted(found: CampaignResult, file: Path | None) -> str:
    runs = counted(found.runs, "run")
    if file is None:
        return f"interrupted after {runs}, of which nothing is kept; with --report FILE a campaign can be continued"
    return f"interrupted: the file {file} has {runs}; the same command continues the campaign"


def _leave(end: BaseException) -> None:
    """End this process at once, with the status of an exception."""
    sys.stdout.flush()
    os._exit(end.code if isinstance(end, SystemExit) and isinstance(end.code, int) else 128 + signal.SIGINT)


def _results(seeds: list[int], jobs: int, server: CampaignServer | None) -> Generator[SimulationResult, None, None]:
    from eventd.simulation.campaign import play_seeds, result_from_json

    if jobs > 1:
        access = server.access if server else None
        yield from map(result_from_json, play_in_processes(seeds, jobs, _folder(), access))
    else:
        yield from play_seeds(seeds, _folder(), server.databases if server else None)


def _server(url: str) -> AbstractContextManager[CampaignServer | None]:
    return databases_on(url) if url else nullcontext()


def run_one(seed: int | None, file: Path | None, *, trace: bool, shrink: bool, postgres: str = "") -> None:
    """Play one plan, of a seed or in a file, and show it; with `trace`, also each step. Raises `CheckFailed`.

    With `shrink`, the smallest plan that fails in the same way is written to a file. `postgres`: the URL of a server on
    which the nodes have their databases.
    """
    fix_hash_seed()
    from eventd.simulation.campaign import require_machine
    from eventd.simulation.faults.fault import POSTGRES, SQLITE
    from eventd.simulation.plan import draw_plan

    require_machine()
    store = POSTGRES if postgres else SQLITE
    plan = draw_plan(seed or 0, store=store) if file is None else _read_plan(file)
    if plan.store != store:
        hint = "leave out --postgres" if postgres else "name a server with --postgres"
        raise Invalid(f"{file}: the plan is for nodes on {plan.store}", hint=hint)
    with _server(postgres) as server:
        _play_one(plan, file, server.databases if server else None, trace=trace, shrink=shrink)


def _play_one(
    plan: SimulationPlan, file: Path | None, server: ScratchDatabases | None, *, trace: bool, shrink: bool
) -> None:
    from eventd.simulation.campaign import trace_plan

    if trace:
        result = trace_plan(plan, print, _folder(), server)
    else:
        print("\n".join(plan.lines()))
        result = trace_plan(plan, lambda _: None, _folder(), server)
    steps = f"{counted(result.steps, 'step')} in {result.seconds:.1f} virtual seconds, sum {result.sum:08x}"
    verdict = "" if result.violations else "; no violation"
    print(f"{steps}; {counted(result.acknowledged, 'event')} acknowledged{verdict}", flush=True)
    for violation in result.violations:
        print(violation, file=sys.stderr, flush=True)
    if not (result.violations or result.counts):
        idle = "the run was too idle to count: it proves nothing"
        if file is None:
            raise CheckFailed(idle, hint="play more seeds with --seeds")
        print(idle, file=sys.stderr)  # as a small plan may be that was kept because it failed once
    if not result.violations:
        if shrink:
            print("nothing to shrink: the run violates nothing", file=sys.stderr)
        return
    if shrink:
        _shrink(plan, result.violations[0].invariant, server)
    raise CheckFailed(f"seed {plan.seed} failed", hint="the lines above say what does not hold")


def _read_plan(file: Path) -> SimulationPlan:
    import msgspec

    from eventd.simulation.plan import plan_from_json

    try:
        return plan_from_json(file.read_bytes())
    except OSError as error:
        raise EventdError(f"{file} cannot be read: {error.strerror}", hint="--shrink writes plans") from None
    except msgspec.DecodeError as error:
        raise EventdError(f"{file} cannot be read as a plan: {error}", hint="--shrink writes plans") from None
    except Invalid as error:
        raise Invalid(f"{file}: {error.message}", hint=error.hint) from None


def _shrink(plan: SimulationPlan, invariant: str, server: ScratchDatabases | None) -> None:
    from eventd.simulation.shrinking import shrink_failure

    def report(smaller: SimulationPlan) -> None:
        print(f"still violates {invariant}: {_size(smaller)}", file=sys.stderr, flush=True)

    on = " --postgres URL" if server is not None else ""
    with _new_file(f"plan-{plan.seed}") as file:  # first: a search takes minutes
        smallest = shrink_failure(plan, invariant, _folder(), report, server)
        try:
            file.write_bytes(smallest.to_json() + b"\n")
        except OSError as error:
            raise _unwritten(file.name, error) from None
    print(f"{file}: {_size(smallest)}; repeat it with routerd-eventd simulate --plan {file}{on} --trace")


@contextmanager
def _new_file(name: str) -> Iterator[Path]:
    """Create a JSON file of the first free name, as another plan must not be overwritten, and yield its path.

    It is removed if the block raises. Raises `EventdError` if it cannot be created.
    """
    try:
        file = next(file for number in itertools.count(1) if (file := _created(name, number)))
    except OSError as error:
        raise _unwritten(f"{name}.json", error) from None
    try:
        yield file
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _unwritten(name: str, error: OSError) -> EventdError:
    reason = f"{name} cannot be written in {Path.cwd()}: {error.strerror}"
    return EventdError(reason, hint="change to another folder")


def _created(name: str, number: int) -> Path | None:
    file = Path(f"{name}.json" if number == 1 else f"{name}-{number}.json")
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return None
    return file


def _size(plan: SimulationPlan) -> str:
    load = counted(len(plan.load), "step of load", "steps of load")
    return f"{counted(len(plan.topology.nodes), 'node')}, {load}, {counted(len(plan.faults), 'fault')}"


def fix_hash_seed() -> None:
    """Start this command again with a fixed hash seed, unless it has one: the order of sets depends on it."""
    if sys.flags.hash_randomization:
        if sys.flags.ignore_environment:
            raise EventdError(
                "Python was started with -E or -I, and so without PYTHONHASHSEED: a seed would not repeat itself",
                hint="start Python without these options",
            )
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], unseeded_environment())


def _folder() -> Path | None:
    if named := scratch_folder():
        return Path(named)
    return MEMORY if os.access(MEMORY, os.W_OK) else None
