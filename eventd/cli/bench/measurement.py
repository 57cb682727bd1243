"""Runs a measurement: options for storing its result, the run, and the display of the result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from eventd.cli.bench.load import Load, make_plan, option, refuse_written
from eventd.cli.gateway.options import REMOTE, SHOW, parameters, variant
from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.declaring import declare
from eventd.cli.program.interrupt import INTERRUPTED
from eventd.cli.program.stopping import EndOnSignal
from eventd.cli.terminal.bar import Bar
from eventd.cli.terminal.output import Column, note
from eventd.errors import CheckFailed, Invalid
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.bench.result import Result
    from eventd.bench.running import Benchmark
    from eventd.bench.site import BenchPlan

NEARLY_A_CORE = 0.85
_NODES: Final = {
    "server": variant(
        "server", envvar=None, help="API of a running node to measure (default: the command starts nodes)."
    ),
    "database": variant(
        "database", help="Empty Postgres database of the node that the command starts (default: SQLite)."
    ),
}
"""The shared options that name the node to measure, in the words of a measurement."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement to run, and the arguments of its plan that do not come from its load options.

    `unused`: the options, by parameter name, that have no effect, and where.
    """

    bench: Benchmark
    wanted: Mapping[str, Any] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The files that the options `--save`, `--compare` and `--plot` name."""

    save: Path | None
    compare: Path | None
    plot: Path | None


_FILE: Final = {"kind": Path | None, "default": None}
_KEEPING: Final = {
    **option("--json", "", "Print one JSON object; the same as -o json.", kind=bool, default=False),
    **option("--save", "FILE", "Append the result to this file.", **_FILE),
    **option(
        "--compare",
        "FILE",
        "Compare with the latest results in this file that have the same settings and machine.",
        **_FILE,
    ),
    **option("--plot", "FILE", "Draw this result and the earlier ones like it as an SVG image.", **_FILE),
}


def measurement(*names: str, load: Load) -> Callable[[Callable[..., Measurement]], Callable[..., None]]:
    """Decorate a function that returns a measurement: the command runs the measurement and shows the result.

    The options of `load` and `_KEEPING` follow the command's own. `names` are the shared options that name the
    node or database to measure. A server must be named on the command line, not by a variable, because a measurement
    puts much load on it.
    """
    options = load.options()

    def decorate(command: Callable[..., Measurement]) -> Callable[..., None]:
        def begin(session: Session, **given: Any) -> None:
            if given.pop("json"):
                session.out.format = "json"
            keeping = ResultFiles(**{name: given.pop(name) for name in ResultFiles.__slots__})
            wanted = {name: given.pop(name) for name in options}
            job = command(**given)
            of_server = {} if session.node.server else dict.fromkeys(REMOTE, "without --server URL")
            refuse_written(session, {**of_server, **job.unused})
            _carry_out(session, job.bench, make_plan(session, load, {**wanted, **job.wanted}), keeping)

        own = [
            inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Session),
            *inspect.signature(command, eval_str=True).parameters.values(),
        ]
        with_own = offline(*names, *SHOW, **{name: _NODES[name] for name in names if name in _NODES})
        return with_own(declare(begin, command, [*own, *parameters({**options, **_KEEPING})]))

    return decorate


def _carry_out(session: Session, bench: Benchmark, plan: BenchPlan, keeping: ResultFiles) -> None:
    from eventd.bench.kept import compare, keep, read_kept

    kept = _look_before(keeping)
    if plan.durability != "full":
        default = "full" if plan.durability == "normal" else "fsync"
        note(
            f"note: durability {plan.durability}: the last acknowledged records may be lost in a power failure; the"
            f" default is {default}"
        )
    result = _measure(bench, plan)
    shown = result.show()
    if keeping.compare is not None:
        shown["compared"] = compare(kept, shown)
        if shown["compared"] is None:
            note(f"note: {keeping.compare} contains no verified {result.bench} with these settings on such a machine")
    _show(session, shown)
    if shown["client_cpu"] > NEARLY_A_CORE:
        note(f"note: this command took {shown['client_cpu']:.0%} of a core: it may be the bottleneck, not the node")
    if keeping.save is not None:
        keep(keeping.save, shown)
    if keeping.plot is not None:
        _draw(keeping.plot, read_kept(keeping.save) if keeping.save is not None else [*kept, shown], shown)
    if not result.verified:
        raise CheckFailed(
            f"the measurement was not verified: {'; '.join(result.problems)}",
            hint="its figures are not valid: measure again",
        )


def _look_before(keeping: ResultFiles) -> list[dict[str, Any]]:
    """Check the file options, and return the results in the file of --compare; none without it.

    Raises errors of these files that would otherwise appear only after the measurement.
    """
    from eventd.bench.kept import read_kept

    if keeping.plot is not None:
        if keeping.save is None and keeping.compare is None:
            raise typer.BadParameter("--plot draws saved results: add --save FILE or --compare FILE")
        if keeping.plot.suffix != ".svg":
            raise typer.BadParameter(f"--plot {keeping.plot}: the name must end in .svg")
    for file in (keeping.save, keeping.plot):
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise Invalid(f"{file}: cannot be written", hint="name a file in an existing folder")
    if keeping.save is not None and keeping.save.exists():
        read_kept(keeping.save)
    return read_kept(keeping.compare) if keeping.compare is not None else []


def _measure(bench: Benchmark, plan: BenchPlan) -> Result:
    """Run the measurement on a loop like a node's, and return its result; a signal exits with 128 + its number.

    In any case it stops its nodes, deletes its files, and prints a note about files that could not be removed.
    """
    import uvloop

    from eventd.bench.running import run_bench

    left = list[str]()

    async def main(bar: Bar) -> Result:
        with EndOnSignal() as signals:
            try:
                return await run_bench(bench, plan, bar.show, left)
            except asyncio.CancelledError:
                if not signals.number:
                    raise
                raise SystemExit(128 + signals.number) from None

    try:
        with Bar() as bar, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main(bar))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(INTERRUPTED) from None
    finally:
        for words in left:
            note(f"note: could not be removed: {words}")


ROWS = (Column("WHAT", lambda row: row["what"]), Column("VALUE", lambda row: row["value"]))


def _show(session: Session, result: dict[str, Any]) -> None:
    """Print the result: the settings, the machine and the figures; with `-o name`, only the name of the measurement."""
    if session.out.format == "name":
        session.out.line(result["bench"])
        return
    if not session.out.is_table:
        session.out.value(result)
        return
    settings = {name.replace("_", " "): value for name, value in result["settings"].items()}
    rows = {**settings, **_machine(result), **_figures(result)}
    session.out.table(ROWS, [{"what": what, "value": _text(value)} for what, value in rows.items()])


def _machine(result: dict[str, Any]) -> dict[str, Any]:
    machine = result["machine"]
    flush = {"fsync": f"{machine['fsync_ms']} ms"} if "fsync_ms" in machine else {}
    return {"machine": f"{counted(machine['cores'], 'core')}, load {machine['load']} at the start", **flush}


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "events": result["events"],
        "seconds": result["seconds"],
        "events/s": round(result["events_per_second"]),
        "MB/s": result["mb_per_second"],
        "p50/p95/p99": f"{result['p50_ms']} / {result['p95_ms']} / {result['p99_ms']} ms",
        "client": f"{result['client_cpu']:.0%} of a core",
        **{name.replace("_", " "): value for name, value in result["figures"].items()},
        "verified": "yes" if result["verified"] else "no",
    }
    if compared := result.get("compared"):
        ratios = ", ".join(f"{name} {compared[name]}" for name in compared if name != "runs")
        shown["compared"] = f"with the median of {counted(compared['runs'], 'run')}: {ratios}"
    return shown


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}" if isinstance(value, float) else str(value)


def _draw(file: Path, kept: list[dict[str, Any]], result: dict[str, Any]) -> None:
    from eventd.bench.kept import alike
    from eventd.bench.plot import plot

    shown = alike(kept, result)
    if not shown:
        note(f"note: {file} is not drawn: no result with these settings on such a machine is verified")
        return
    file.write_text(plot(shown), encoding="utf-8")
