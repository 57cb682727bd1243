"""routerctl apply, diff, get, describe, delete: declared resources."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.selecting import DryRunOption
from eventd.cli.gateway.session import Session, connected, connected_without_table, only_calls
from eventd.cli.program.exits import ExitCode
from eventd.cli.terminal.output import Column, note, show_moment
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.resources.reading.documents import ReadResult

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


@connected_without_table
@only_calls
async def apply(
    session: Session,
    filename: FilesOption,
    prune: PruneOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --prune: delete all resources if the files hold none.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Apply resources from files, atomically. Creates the database if it is missing."""
    session.make, session.pretend = not dry_run, dry_run
    answer = await session.call(
        "resources.apply", sources=read_files(filename), prune=prune, allow_empty=force, dry_run=dry_run
    )
    show_changes(session, answer)


@connected_without_table
@only_calls
async def diff(
    session: Session,
    filename: FilesOption,
    prune: PruneOption = False,
    exit_code: ExitCodeOption = False,
) -> None:
    """Show what `apply` would change, as a unified diff."""
    session.pretend = True
    answer = await session.call("resources.diff", sources=read_files(filename), prune=prune)
    changed = [change for change in answer["changes"] if change["diff"]]
    lines = [printable(line) for change in changed for line in change["diff"].splitlines()]
    session.out.outcome(changed, *lines, name=full_name, notes=_lost_events(changed, "would be deleted with it"))
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


def show_changes(session: Session, answer: Mapping[str, Any]) -> None:
    """Print what an apply or a deletion has changed, or would change."""
    changes, suffix, verb = answer["changes"], "", "were deleted with it"
    if answer["dryRun"]:
        suffix, verb = " (dry run)", "would be deleted with it"
    lines = [f"{full_name(change)} {change['action']}{suffix}" for change in changes]
    session.out.outcome(changes, *lines, name=full_name, notes=_lost_events(changes, verb))


def _lost_events(changes: Sequence[Mapping[str, Any]], verb: str) -> list[str]:
    """Return a note for each deleted group with stored events."""
    return [
        f"note: {counted(change['events'], 'stored event')} of group {change['name']} {verb}"
        for change in changes
        if change.get("events")
    ]


def full_name(row: Mapping[str, Any]) -> str:
    name = row["name"] if "name" in row else row["metadata"]["name"]
    return f"{row['kind'].lower()}/{name}"


def _created(row: Mapping[str, Any]) -> str:
    return show_moment(row["metadata"]["creationTimestamp"])


def _listen(row: Mapping[str, Any]) -> str:
    listen = row["spec"].get("listen") or {}
    return f"{listen['address']}:{listen['port']}" if listen.get("address") else "-"


def _spec(path: str, default: str = "-") -> Any:
    def show(row: Mapping[str, Any]) -> str:
        value: Any = row["spec"]
        for step in path.split("."):
            value = (value or {}).get(step)
        return ",".join(value) if isinstance(value, list) and value else str(value or default)

    return show


def _sources(row: Mapping[str, Any]) -> str:
    return ",".join(rule["source"] for rule in row["spec"].get("allow", [])) or "-"


def _source(row: Mapping[str, Any]) -> str:
    source = row["spec"].get("source") or {}
    return f"group:{source['groupRef']}" if source.get("groupRef") else str(source.get("topic") or "-")


def _signing_keys(row: Mapping[str, Any]) -> str:
    keys = (row["spec"].get("signing") or {}).get("keys", [])
    return ",".join(key["id"] for key in keys if key.get("state", "active") in ("active", "retiring")) or "-"


def _tenant_keys(row: Mapping[str, Any]) -> str:
    spec = row["spec"]
    written = len((spec.get("jwks") or {}).get("keys", []))
    own = "exchange" if spec.get("exchange") else "-"
    return str(spec.get("jwksURL") or spec.get("jwksFile") or (counted(written, "key") if written else own))


_NAME = Column("NAME", lambda row: row["metadata"]["name"])
_GENERATION = Column("GENERATION", lambda row: str(row["metadata"]["generation"]), wide=True)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "EventGroup": (
        _NAME,
        Column("NODE", _spec("nodeName")),
        Column("LISTEN", _listen),
        Column("PROTOCOLS", _spec("protocols", "v1,v2")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "EventPeer": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("NODE", _spec("nodeName")),
        Column("ENDPOINT", _spec("endpoint")),
        Column("PROTOCOL", _spec("protocol", "auto")),
        Column("CREATED", _created),
        Column("TYPES", _spec("types", "all"), wide=True),
        Column("SUBJECT_PREFIXES", _spec("subjectPrefixes", "all"), wide=True),
        _GENERATION,
    ),
    "Plugin": (
        _NAME,
        Column("RUNS", lambda row: row["spec"].get("executable") or f"entry point {row['spec'].get('entryPoint')}"),
        Column("TIMEOUT", _spec("timeout", "10s")),
        Column("CAPABILITIES", _spec("capabilities")),
        Column("CREATED", _created),
        Column("CONCURRENCY", _spec("concurrency", "4"), wide=True),
        _GENERATION,
    ),
    "EventSubscription": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("PLUGIN", _spec("trigger.pluginRef")),
        Column("TYPES", _spec("match.types")),
        Column("CREATED", _created),
        Column("BATCH_WINDOW", _spec("trigger.batchWindow"), wide=True),
        Column("DEBOUNCE", _spec("trigger.debounce"), wide=True),
        Column("SUBJECT_PREFIXES", _spec("match.subjectPrefixes", "all"), wide=True),
        _GENERATION,
    ),
    "EventCallback": (
        _NAME,
        Column("SOURCE", _source),
        Column("URL", _spec("url")),
        Column("FORMAT", _spec("format", "standard")),
        Column("KEYS", _signing_keys),
        Column("CREATED", _created),
        Column("TYPES", _spec("match.types", "all"), wide=True),
        Column("IN_FLIGHT", _spec("limits.inFlight", "1"), wide=True),
        Column("DISABLE_AFTER", _spec("disableAfter", "120h0m0s"), wide=True),
        _GENERATION,
    ),
    "StreamTenant": (
        _NAME,
        Column("KEYS", _tenant_keys),
        Column("ISSUER", _spec("exchange.issuer")),
        Column("CREATED", _created),
        Column("TTL", _spec("exchange.ttl"), wide=True),
        _GENERATION,
    ),
    "StreamCache": (
        _NAME,
        Column("TENANT", _spec("tenant")),
        Column("NAMESPACE", _spec("namespace", "default")),
        Column("CACHE", _spec("name", "default")),
        Column("MAX_BYTES", _spec("maxBytes", "64MiB")),
        Column("CREATED", _created),
        Column("MAX_ENTRIES", _spec("maxEntries", "1000000"), wide=True),
        Column("MAX_TTL", _spec("maxTTL", "none"), wide=True),
        _GENERATION,
    ),
    "FederationSLO": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("LAG_WARN", _spec("delivery.lagWarnSeconds", "60")),
        Column("LAG_FAIL", _spec("delivery.lagFailSeconds", "180")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "DynamicConfigSource": (
        _NAME,
        Column("PLUGIN", _spec("pluginRef")),
        Column("TTL", _spec("ttl")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "DynamicOverridePolicy": (_NAME, Column("SOURCES", _sources), Column("CREATED", _created), _GENERATION),
}
_OTHERS = (
    _NAME,
    Column("KIND", lambda row: row["kind"]),
    Column("APIVERSION", lambda row: row["apiVersion"]),
    Column("CREATED", _created),
    _GENERATION,
)
"""The columns of kinds of other programs."""


@connected
@only_calls
async def get(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="Kind, such as EventPeer (ep) or EventSubscription (es); several: eg,ep; or all."
        ),
    ],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of resources.")] = None,
    selector: Annotated[
        str,
        typer.Option(
            "-l",
            "--selector",
            metavar="LABELS",
            help="Only resources with these labels: site=north, tier!=lab, env in (a, b), !old; several by commas.",
        ),
    ] = "",
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
    if len(names) == 1:
        row = await session.call("resources.get", kind=wanted[0], name=names[0])
        session.out.one(_COLUMNS.get(row["kind"], _OTHERS), row, name=full_name)
        return
    rows = await _named(session, wanted[0], names) if names else await _listed(session, wanted, selector)
    if session.out.is_table:
        _show_tables(session, rows)
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


async def _named(session: Session, kind: str, names: Sequence[str]) -> list[dict[str, Any]]:
    return [await session.call("resources.get", kind=kind, name=name) for name in dict.fromkeys(names)]


async def _listed(session: Session, kinds: Sequence[str], selector: str) -> list[dict[str, Any]]:
    """Return the resources of these kinds, in this order; each once."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for kind in kinds:
        word = "" if kind.lower() == "all" else kind
        answer = await session.call("resources.list", kind=word, selector=selector)
        for row in answer["resources"]:
            rows.setdefault((row["apiVersion"], row["kind"], row["metadata"]["name"]), row)
    return list(rows.values())


def _show_tables(session: Session, rows: list[dict[str, Any]]) -> None:
    """Print a table for each of this program's kinds, and one for all others."""
    tables = [(columns, [row for row in rows if row["kind"] == kind]) for kind, columns in _COLUMNS.items()]
    tables.append((_OTHERS, [row for row in rows if row["kind"] not in _COLUMNS]))
    shown = [(columns, those) for columns, those in tables if those]
    for at, (columns, those) in enumerate(shown):
        if at:
            session.out.line()
        session.out.table(columns, those)


@connected
@only_calls
async def describe(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="Kind, such as EventPeer (ep) or EventSubscription (es)."),
    ],
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the resource; or write KIND/NAME.")] = "",
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
async def delete(
    session: Session,
    kind: Annotated[
        str,
        typer.Argument(metavar="[KIND]", help="Kind, such as EventPeer (ep) or EventSubscription (es)."),
    ] = "",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the resource; or write KIND/NAME.")] = "",
    filename: OptionalFilesOption = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="With -f: skip resources that do not exist.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete a resource, or all resources in files. A group is deleted with its stored events."""
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
