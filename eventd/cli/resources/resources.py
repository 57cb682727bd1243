"""routerctl apply, diff, get, describe, delete: declared resources."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.federation.undelivered import note_what_may_be_lost
from eventd.cli.gateway.completion import complete_kind, complete_name
from eventd.cli.gateway.selecting import DryRunOption, WatchOption
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.program.exits import ExitCode
from eventd.cli.resources.listing import columns_of, full_name, has_several, listed, named, show_tables
from eventd.cli.terminal.output import note
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.resources.reading.documents import ReadResult

_MOST_NAMED = 5
"""The largest number of resources that a question names."""

FilesOption = Annotated[
    list[str],
    typer.Option("--filename", "-f", metavar="FILE", help="File, directory, or - for standard input; repeatable."),
]
OptionalFilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", metavar="FILE", help="Delete the resources in these files; - is standard input; repeatable."
    ),
]
ExitCodeOption = Annotated[bool, typer.Option("--exit-code", help="Exit with status 4 if there is a difference.")]
PruneOption = Annotated[bool, typer.Option("--prune", help="Delete resources that are not in the files.")]
AdoptOption = Annotated[
    bool, typer.Option("--adopt", help="Take over topics and routers that were made through the API.")
]


@connected_without_table
@only_calls
@may_ask
async def apply(
    session: Session,
    filename: FilesOption,
    prune: PruneOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --prune: delete all resources if the files hold none.")
    ] = False,
    adopt: AdoptOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Apply resources from files, atomically. Creates the database if it is missing."""
    session.make, session.pretend = not dry_run, dry_run
    request = {"sources": read_files(filename), "prune": prune, "allow_empty": force, "adopt": adopt}
    if session.asks and not dry_run:
        planned = await session.call("resources.apply", **request, dry_run=True)
        if losses := _losses(planned["changes"]):
            session.confirm_ending(f"apply the files, which {losses}")
    answer = await session.call("resources.apply", **request, dry_run=dry_run)
    verb = "would remove" if dry_run else "removes"
    may_lose = await note_what_may_be_lost(session, answer["changes"], verb=verb) if session.out.is_table else ()
    show_changes(session, answer, may_lose)


def _losses(changes: Sequence[Mapping[str, Any]]) -> str:
    """Return the part of a sentence that says what the changes delete; empty if they delete nothing."""
    deleted = [_deletion(change) for change in changes if change["action"] == "deleted"]
    lowered = [
        f"{' and '.join(change['lowers'])} of {full_name(change)}, by which older records or events are deleted"
        for change in changes
        if change.get("lowers")
    ]
    return " and ".join(
        f"{verb} {', '.join(found[:_MOST_NAMED])}{f' and {len(found) - _MOST_NAMED} more' * (len(found) > _MOST_NAMED)}"
        for verb, found in (("deletes", deleted), ("lowers", lowered))
        if found
    )


def _deletion(change: Mapping[str, Any]) -> str:
    lost = next((f" with {counted(change[what], what[:-1])}" for what in ("events", "records") if change.get(what)), "")
    return f"{full_name(change)}{lost}"


@connected_without_table
@only_calls
async def diff(
    session: Session,
    filename: FilesOption,
    prune: PruneOption = False,
    adopt: AdoptOption = False,
    exit_code: ExitCodeOption = False,
) -> None:
    """Show what `apply` would change, as a unified diff."""
    session.pretend = True
    answer = await session.call("resources.diff", sources=read_files(filename), prune=prune, adopt=adopt)
    changed = [change for change in answer["changes"] if change["diff"] or change.get("adopted")]
    lines = [printable(line) for change in changed for line in change["diff"].splitlines()]
    notes = [*_lost_events(changed, "would be deleted with it"), *_lowered_limits(changed, "would be deleted")]
    notes += [f"note: {full_name(each)} would be adopted as it is" for each in changed if not each["diff"]]
    session.out.outcome(changed, *lines, name=full_name, notes=notes)
    if changed and exit_code:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def read_files(paths: list[str]) -> list[dict[str, Any]]:
    """Return each file as a source for a request: its text, or why it cannot be read.

    So all problems are reported together.
    """
    from eventd.resources.reading.documents import MAX_BYTES, read_file, read_sources

    texts: dict[str, bytes] = {}

    def read(path: Path) -> bytes:
        texts[str(path)] = read_file(path)
        return texts[str(path)]

    def read_stdin() -> bytes:
        texts["<stdin>"] = sys.stdin.buffer.read(MAX_BYTES + 1)
        return texts["<stdin>"]

    loaded = read_sources(paths, read=read, read_stdin=read_stdin)
    return [*_unreadable(loaded, texts), *_texts(texts)]


def _unreadable(loaded: ReadResult, texts: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the problems of files that are not sent as text; problems in a text are found when the text is applied."""
    return [
        {"name": problem.source, "problem": problem.message, "line": problem.line}
        for problem in loaded.problems
        if problem.source not in texts or not _is_text(texts[problem.source])
    ]


def _texts(texts: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "text": raw.decode("utf-8-sig")} for name, raw in texts.items() if _is_text(raw)]


def _is_text(raw: bytes) -> bool:
    from eventd.resources.reading.documents import MAX_BYTES

    try:
        raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return len(raw) <= MAX_BYTES


def show_changes(session: Session, answer: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """Print the changes that an apply or a deletion has made, or would make; and `more` notes."""
    changes, suffix, verb = answer["changes"], "", "were deleted"
    beyond = "are deleted"
    if answer["dryRun"]:
        suffix, verb, beyond = " (dry run)", "would be deleted", "would be deleted"
    lines = [
        f"{full_name(change)} {change['action']}{', adopted' if change.get('adopted') else ''}{suffix}"
        for change in changes
    ]
    judged = any(one["kind"] == "EventCallback" and one["action"] in ("created", "configured") for one in changes)
    whose = session.note_on_callbacks() if judged else ""
    lost = [*_lost_events(changes, f"{verb} with it"), *_lowered_limits(changes, beyond)]
    notes = [*lost, *more, *([whose] if whose else [])]
    session.out.outcome(changes, *lines, name=full_name, notes=notes)


def _lost_events(changes: Sequence[Mapping[str, Any]], verb: str) -> list[str]:
    """Return a note for each deleted group with stored events, and for each deleted topic with records."""
    return [
        f"note: {counted(change[lost], f'stored {lost[:-1]}')} of {noun} {change['name']} {verb}"
        for change in changes
        for lost, noun in (("events", "group"), ("records", "topic"))
        if change.get(lost)
    ]


def _lowered_limits(changes: Sequence[Mapping[str, Any]], verb: str) -> list[str]:
    """Return a note for each topic or group of which a change deletes what its limits kept before."""
    return [
        f"note: {' and '.join(change['lowers'])} of {full_name(change)}: older"
        f" {'events' if change['kind'] == 'EventGroup' else 'records'} beyond the new limit {verb}"
        for change in changes
        if change.get("lowers")
    ]


@connected
@only_calls
async def get(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            autocompletion=complete_kind,
            help="Kind, such as EventPeer (ep) or EventSubscription (es); several: eg,ep; or all.",
        ),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", autocompletion=complete_name, help="Names of resources.")
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            "-l",
            "--selector",
            metavar="LABELS",
            help="Only resources with these labels: site=north, tier!=lab, env in (a, b), !old; several by commas.",
        ),
    ] = "",
    watch: WatchOption = False,
) -> None:
    """Show declared resources. The YAML and JSON output can be applied again.

    KIND/NAME shows one resource as well.
    """
    kind, name = parted(kind, ", ".join(names or []))
    wanted, names = [word for word in kind.split(",") if word], names or ([name] if name else [])
    if names and (len(wanted) != 1 or wanted[0].lower() == "all"):
        raise typer.BadParameter(f"{kind} takes no name: write one kind before the name")
    if names and selector:
        raise typer.BadParameter("--selector takes no name: leave one out")
    if watch:
        from eventd.cli.resources.watching import watch_resources

        await named(session, wanted[0], names)  # which reports a missing one
        await watch_resources(session, wanted, names, selector)
        return
    if len(names) == 1:
        row = await session.call("resources.get", kind=wanted[0], name=names[0])
        session.out.one(columns_of(row["kind"]), row, name=full_name)
        return
    rows = await named(session, wanted[0], names) if names else await listed(session, wanted, selector)
    if session.out.is_table:
        show_tables(session, rows, with_kind=has_several(wanted))
        if not rows:
            note(f"no resource has the labels {selector}" if selector else "no resources are declared")
    else:
        session.out.rows((), rows, name=full_name)


def parted(kind: str, name: str) -> tuple[str, str]:
    """Return kind and name of `KIND NAME` or `KIND/NAME`. Raises `BadParameter` for two names."""
    before, slash, after = kind.partition("/")
    if not slash or "," in kind:
        return kind, name
    if name:
        raise typer.BadParameter(f"{kind} has a name already: leave out {name}")
    return before, after


@connected
@only_calls
async def describe(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", autocompletion=complete_kind, help="Kind, such as EventPeer (ep) or EventSubscription (es)."
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", autocompletion=complete_name, help="Name of the resource; or write KIND/NAME."
        ),
    ] = "",
) -> None:
    """Show one resource with defaults, link state, lag and recent errors."""
    from eventd.cli.resources.describe import describe_resource

    kind, name = parted(kind, name)
    if not name:
        raise typer.BadParameter(f"name the resource: {kind} NAME")
    answer = await session.call("resources.describe", kind=kind, name=name)
    if session.out.is_table:
        describe_resource(session.out, answer)
    elif session.out.format == "name":
        session.out.line(full_name(answer["resource"]))
    else:
        session.out.value(answer)


@connected_without_table
@only_calls
@may_ask
async def delete(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            autocompletion=complete_kind,
            help="Kind, such as EventPeer (ep) or EventSubscription (es).",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", autocompletion=complete_name, help="Name of the resource; or write KIND/NAME."
        ),
    ] = "",
    filename: OptionalFilesOption = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="With -f: skip resources that do not exist.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete a resource, or all resources in files. A group is deleted with its events, a Topic with its records."""
    kind, name = parted(kind, name)
    if bool(filename) == bool(kind) or (kind and not name):
        raise typer.BadParameter("name what to delete: KIND NAME, or -f FILE")
    if filename:
        answer = await session.call(
            "resources.delete_sources", sources=read_files(filename), ignore_not_found=ignore_not_found, dry_run=dry_run
        )
    else:
        answer = await session.call("resources.delete", kind=kind, name=name, dry_run=dry_run)
    show_changes(session, answer)
