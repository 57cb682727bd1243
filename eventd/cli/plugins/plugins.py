"""routerctl plugin: init, list, check, run, runs, logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_plugin
from eventd.cli.gateway.session import Session, connected, connected_without_table, offline, only_calls
from eventd.cli.terminal.output import Column, moment, note, show_moment, show_span, text
from eventd.errors import CheckFailed, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

RUN_STATUSES = ("running", "succeeded", "failed", "blocked", "interrupted", "parked", "lost")
"""The statuses of a run, listed here so that the help does not load the node."""

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_plugin, help="Name of the Plugin.")
]

PLUGINS = (
    Column("NAME", text("name")),
    Column("EXECUTABLE", lambda row: row["executable"] or f"entryPoint:{row['entryPoint']}"),
    Column("CAPABILITIES", text("capabilities")),
    Column("TRIGGERS", text("triggers")),
    Column("ENTRY_POINT", text("entryPoint"), wide=True),
)
CHECKS = (
    Column("CHECK", text("check")),
    Column("VERDICT", text("verdict")),
    Column("TOOK", lambda row: show_span(row["tookSeconds"])),
    Column("REASON", text("reason")),
)
RUNS = (
    Column("RUN", text("id")),
    Column("PLUGIN", text("plugin")),
    Column("TRIGGER", text("trigger")),
    Column("STATUS", text("status")),
    Column("EVENTS", lambda row: str(row["events"])),
    Column("ATTEMPT", text("attempt")),
    Column("STARTED", moment("startedAt")),
    Column("COMPLETED", moment("completedAt")),
    Column("ERROR", lambda row: _cut(row["error"]), uncut=text("error")),
    Column("SUBSCRIPTION", text("subscription"), wide=True),
    Column("EXIT", lambda row: "-" if row["exitCode"] is None else str(row["exitCode"]), wide=True),
    Column("SOURCE", text("dynamicSource"), wide=True),
)
_LONGEST_ERROR = 60


def _cut(error: str) -> str:
    return (error if len(error) <= _LONGEST_ERROR else error[: _LONGEST_ERROR - 3] + "...") or "-"


@offline("output")
def init(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the plugin: lowercase letters, digits and dashes.")
    ],
    shell: Annotated[bool, typer.Option("--shell", help="Create a shell script instead of a Python package.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="PATH", help="Folder to create (default: the name of the plugin)."),
    ] = None,
) -> None:
    """Create a folder with a new plugin that works as it is, its test, and the resources that use it."""
    from eventd.plugins.author.skeleton import skeleton, write_skeleton

    folder = directory or Path(name)
    files = skeleton(name, folder, shell=shell)
    write_skeleton(files, folder)
    rows = [{"file": str(folder / path)} for path in files]
    lines, notes = [f"{row['file']} created" for row in rows], [f"{folder / 'README.md'} describes the next steps"]
    session.out.outcome(rows, *lines, name=lambda row: row["file"], notes=notes)


@connected
@only_calls
async def list_plugins(session: Session) -> None:
    """List declared plugins."""
    answer = await session.call("plugins.list")
    session.out.rows(PLUGINS, answer["plugins"], name=lambda row: row["name"])


@connected
async def check(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of a declared Plugin.")] = "",
    executable: Annotated[
        Path | None, typer.Option("--executable", metavar="PATH", help="Check a program of this machine instead.")
    ] = None,
    entry_point: Annotated[
        str, typer.Option("--entry-point", metavar="NAME", help="Check an entry point of this machine instead.")
    ] = "",
    type: Annotated[str, typer.Option("--type", metavar="TYPE", help="Type of the sample events.")] = "",
) -> None:
    """Check a plugin with sample requests; exits with status 4 if it breaks the contract."""
    if sum((bool(name), executable is not None, bool(entry_point))) != 1:
        raise typer.BadParameter("name what to check, one of: NAME, --executable PATH or --entry-point NAME")
    if name:
        answer = await session.call("plugins.check", name=name, type=type)
    else:
        answer = await _check_here(executable, entry_point, type)
    session.out.rows(CHECKS, answer["checks"], name=lambda row: f"{row['check']}: {row['verdict']}")
    if answer["failed"]:
        _tell_stderr(next((row for row in answer["checks"] if row["stderr"]), None))
        raise CheckFailed(
            f"the plugin breaks the contract: {counted(answer['failed'], 'check')} failed",
            hint="the column REASON, or the field `reason`, says why",
        )


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())


async def _check_here(executable: Path | None, entry_point: str, type: str) -> dict[str, Any]:
    """Check an undeclared plugin on this machine, with all capabilities; return what `plugins.check` would."""
    from eventd.api.admin.subscriptions.plugins import make_checking, run_checks
    from eventd.plugins.run.check import undeclared
    from eventd.runtime.clock import SystemClock
    from eventd.runtime.threads import THREADS

    path = _absolute(executable)
    config = undeclared(entry_point or Path(path).name, executable=path, entry_point=entry_point)
    return await run_checks(make_checking(SystemClock(), config, type, THREADS))


@connected_without_table
@only_calls
async def run(
    session: Session,
    name: NameArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run the plugin and show its proposal; store nothing.")
    ] = False,
) -> None:
    """Run a plugin once, without events, and store its proposal."""
    from eventd.plugins.contract.contract import PluginFailed
    from eventd.plugins.run.executable import LOOK

    try:
        answer = await session.call("plugins.run", name=name, dry_run=dry_run)
    except PluginFailed as failed:
        _tell_stderr(failed.detail.get("outcome"))
        failed.hint = "" if failed.hint == LOOK else failed.hint  # it has just been shown
        raise
    if session.out.is_table:
        _show_report(session, answer)
    else:
        session.out.one((), answer, name=lambda row: row["source"])


def _tell_stderr(outcome: Any) -> None:
    if isinstance(outcome, Mapping):
        for line in str(outcome.get("stderr", "")).splitlines():
            note(f"plugin: {printable(line)}")


def _show_report(session: Session, answer: Mapping[str, Any]) -> None:
    spec, summary = answer["part"]["spec"], answer["summary"]
    named = [f"  {_identity(resource)}" for resource in spec["resources"]]
    lines = [
        ("Plugin", answer["plugin"]),
        ("Mode", "stored" if answer["stored"] else "dry-run"),
        ("Source", answer["source"]),
        ("Generation", spec["generation"]),
        ("Observed At", show_moment(spec["observedAt"])),
        ("Expires", show_moment(spec["expiresAt"])),
        ("Digest", spec["digest"]),
        ("Resources", "\n".join([str(summary["resources"]), *named])),
        ("Directives", summary["directives"]),
        ("Action Plans", f"{summary['actionPlans']} (display-only)" if summary["actionPlans"] else 0),
        ("Events", summary["events"]),
    ]
    for title, value in lines:
        first, *rest = str(value).splitlines()
        session.out.line(f"{title + ':':<14}{printable(first)}")
        for line in rest:
            session.out.line(printable(line))
    _tell_stderr(answer["outcome"])


def _identity(resource: Mapping[str, Any]) -> str:
    return f"{resource['apiVersion']}/{resource['kind']}/{resource['metadata']['name']}"


@connected
@only_calls
async def runs(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only runs of this Plugin.")] = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"Only runs with this status: {', '.join(f'`{status}`' for status in RUN_STATUSES)}; repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Maximum number of runs; the latest are shown.")
    ] = 100,
    before: Annotated[
        int | None, typer.Option("--before", metavar="RUN", min=1, help="Only runs earlier than this one.")
    ] = None,
) -> None:
    """List runs of plugins, the latest first."""
    further = {} if before is None else {"before": before}
    answer = await session.call("plugins.runs", plugin=name, status=status or [], limit=limit, **further)
    session.out.rows(RUNS, answer["runs"], name=lambda row: str(row["id"]))
    if name and not answer["runs"]:
        await _note_undeclared(session, name)
    if answer["next"] is not None:
        note(f"note: there are more runs: continue with --before {answer['next']}")


async def _note_undeclared(session: Session, name: str) -> None:
    """Print a note if the name is not declared: it may be misspelt, but runs outlive their Plugin."""
    declared = [row["name"] for row in (await session.call("plugins.list"))["plugins"]]
    if name not in declared:
        note(f"note: Plugin {name} is not declared (declared: {', '.join(declared) or 'none'})")


@connected_without_table
@only_calls
async def logs(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the Plugin.")] = "",
    run: Annotated[
        int | None,
        typer.Option("--run", metavar="RUN", min=1, help="Id of the run (default: the latest with output)."),
    ] = None,
) -> None:
    """Show the output of a plugin's run: error, standard error, traceback."""
    if not name and run is None:
        raise typer.BadParameter("name the plugin, the run, or both: NAME, --run RUN")
    further = {} if run is None else {"before": run + 1, "limit": 1}
    found = (await session.call("plugins.runs", plugin=name, status=[], **further))["runs"]
    failed = [one for one in found if one["error"] or one["stderr"]] or found
    if not failed or run not in (None, failed[0]["id"]):
        what = f"run {run}" if run else "run"
        raise NotFound(f"no {what} of {name or 'any plugin'} is kept", hint="`routerctl plugin runs` lists the runs")
    if session.out.is_table:
        _show_log(session, failed[0])
    else:
        session.out.one((), failed[0], name=lambda row: str(row["id"]))


def _show_log(session: Session, run: Mapping[str, Any]) -> None:
    from eventd.plugins.run.executable import LOOK

    lines = [
        ("Run", f"{run['id']} of {run['plugin']}, {run['trigger']}"),
        ("Started", show_moment(run["startedAt"])),
        ("Status", f"{run['status']}, attempt {run['attempt']}, {counted(run['events'], 'event')}"),
        ("Exit Code", "-" if run["exitCode"] is None else run["exitCode"]),
        ("Error", run["error"].removesuffix(f" ({LOOK})") or "-"),
    ]
    for title, value in lines:
        session.out.line(f"{title + ':':<12}{printable(str(value))}")
    if run["stderr"]:
        session.out.line()
    for line in run["stderr"].splitlines():
        session.out.line(printable(line))
