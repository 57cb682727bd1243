"""routerctl dynamic: list, describe, render, diff, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.watch import PAUSE
from eventd.cli.gateway.selecting import WatchOption
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.program.exits import ExitCode
from eventd.cli.resources.resources import ExitCodeOption, read_files
from eventd.cli.terminal.output import Column, moment, note, show_moment, text, write_json
from eventd.runtime.clock import SystemClock
from eventd.text.invisible import printable
from eventd.text.plural import counted

PARTS = (
    Column("SOURCE", text("source")),
    Column("GEN", text("generation")),
    Column("STATUS", text("status")),
    Column("RESOURCES", lambda row: str(row["resources"])),
    Column("DIRECTIVES", lambda row: str(row["directives"])),
    Column("ACTIONPLANS", lambda row: str(row["actionPlans"])),
    Column("EXPIRES", moment("expiresAt")),
    Column("PLUGIN", text("plugin"), wide=True),
    Column("GROUP", text("group"), wide=True),
    Column("REASON", text("reason"), wide=True),
)

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Source of the part, as `dynamic list` shows it.")
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="FILE", help="Use the resources in this file instead of the declared ones; repeatable."
    ),
]


@connected
@only_calls
async def list_parts(
    session: Session,
    owner: Annotated[
        str, typer.Option("--owner", metavar="OWNER", help="Only parts of EventSubscription/NAME or Plugin/NAME.")
    ] = "",
    watch: WatchOption = False,
) -> None:
    """List the parts that plugins proposed, the latest first, with the reason why one is left out."""
    if watch:
        show, seen = session.out.stream_rows(PARTS, name=_source), dict[str, Any]()
        async for answer in _answers(session, "dynamic.list", owner=owner):
            present = {row["source"]: row for row in answer["parts"]}
            show([row for source, row in present.items() if seen.get(source) != row])
            for source in seen.keys() - present.keys():
                note(f"deleted: {source}")
            seen = present
        return
    parts = (await session.call("dynamic.list", owner=owner))["parts"]
    session.out.rows(PARTS, parts, name=_source)
    if session.out.format == "table":
        for part in parts:
            if part["reason"]:
                note(f"note: {part['source']} has no effect: {printable(part['reason'])}")


def _source(row: Mapping[str, Any]) -> str:
    return str(row["source"])


async def _answers(session: Session, operation: str, **params: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the answer of an operation, and then each changed answer, until Ctrl-C."""
    clock, state = SystemClock(), ""
    try:
        while True:
            answer = await session.call(operation, unless=state, **params)
            if not answer.get("unchanged"):
                yield answer
            state = answer["state"]
            await clock.sleep(PAUSE)
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends


@connected_without_table
@only_calls
async def describe(session: Session, source: SourceArgument) -> None:
    """Show a part, or all parts of an owner: EventSubscription/NAME or Plugin/NAME."""
    parts = (await session.call("dynamic.describe", source=source))["parts"]
    if not session.out.is_table:
        session.out.rows((), parts, name=_source)
    for number, part in enumerate(parts if session.out.is_table else ()):
        if number:
            session.out.line()
        for name, value in _block(part):
            label = f"{name}:" if name else ""
            session.out.line(f"{label:<14}{printable(value)}".rstrip())
    if not parts:
        meant = "" if "/" in source else f" (did you mean EventSubscription/{source}?)"
        note(f"note: no part has the source or owner {source}; `routerctl dynamic list` shows the parts{meant}")


def _block(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("Source", part["source"]),
        ("Generation", str(part["generation"])),
        ("Status", part["status"] + (f": {part['error']}" if part.get("error") else "")),
        ("Plugin", part["plugin"]),
        ("Group", part["group"] or "-"),
        ("Observed At", show_moment(part["observedAt"])),
        ("Expires", show_moment(part["expiresAt"])),
        ("Digest", part["digest"]),
        ("Events", ", ".join(part["eventIds"]) or "-"),
        ("Gives", str(len(part["gives"]))),
    ]
    until = f"until {show_moment(part['expiresAt'])}"
    lines += [("", f"  {_name(one)}  until {show_moment(one['until'])}") for one in part["gives"]]
    lines += [("Directives", str(len(part["directives"])))]
    lines += [("", f"  {one.get('op', '?')} {_name(one.get('target') or {})}  {until}") for one in part["directives"]]
    lines += [("Action Plans", f"{len(part.get('actionPlans', []))} (for display only)")]
    lines += [("", f"  {one.get('name', '?')}  {one.get('action', '')}") for one in part.get("actionPlans", [])]
    return lines


def _name(resource: Mapping[str, Any]) -> str:
    return "/".join(str(resource.get(name, "?")) for name in ("apiVersion", "kind", "name"))


@connected_without_table
@only_calls
async def render(session: Session, config: ConfigOption = None, watch: WatchOption = False) -> None:
    """Print the effective configuration: the declared resources, minus those masked, plus those of parts."""
    sources = read_files(config) if config else []
    if watch:
        async for answer in _answers(session, "dynamic.render", sources=sources):
            _print_router(session, answer["router"], again=True)
        return
    _print_router(session, (await session.call("dynamic.render", sources=sources))["router"])


def _print_router(session: Session, router: Mapping[str, Any], *, again: bool = False) -> None:
    out = session.out
    if out.format == "name":
        for resource in router["spec"]["resources"]:
            out.line(f"{resource['kind'].lower()}/{resource['metadata']['name']}")
    elif out.format == "json":
        _print_json(session, router, again=again)
    elif out.is_document and out.format != "yaml":
        out.value(router)
    else:
        from eventd.resources.reading.yaml_text import write_yaml

        out.document((f"---\n{write_yaml(router)}" if again else write_yaml(router)).rstrip("\n"))
    out.flush()


def _print_json(session: Session, value: Mapping[str, Any], *, again: bool) -> None:
    """Print JSON: indented, or with `again` on one line."""
    if again:
        session.out.document(write_json(value))
    else:
        session.out.value(value)


@connected_without_table
@only_calls
async def diff(
    session: Session,
    config: ConfigOption = None,
    watch: WatchOption = False,
    exit_code: ExitCodeOption = False,
    unified: Annotated[
        bool, typer.Option("--unified", "-u", help="Show the changes as a unified diff of at most 100 resources.")
    ] = False,
) -> None:
    """Show how parts change the declared resources, and which parts have no effect."""
    if watch and (exit_code or unified):
        option = "--exit-code" if exit_code else "--unified"
        raise typer.BadParameter(f"--watch ends only with Ctrl-C and cannot be used with {option}")
    sources = read_files(config) if config else []
    if watch:
        first = True
        async for answer in _answers(session, "dynamic.diff", sources=sources):
            if session.out.is_table and not first:
                session.out.line()
            _print_diff(session, answer, again=True)
            first = False
        return
    answer = await session.call("dynamic.diff", sources=sources, show_diff=unified)
    if unified and session.out.is_table:
        for line in answer["diff"].splitlines():
            session.out.line(printable(line))
        if not answer["diffIsWhole"]:
            note("note: more changes than these: without --unified, the command lists all of them")
    else:
        _print_diff(session, answer)
    if exit_code and (answer["suppressed"] or answer["addedResources"]):
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _print_diff(session: Session, answer: Mapping[str, Any], *, again: bool = False) -> None:
    out = session.out
    shown = {name: value for name, value in answer.items() if name != "state"}
    if out.format == "name":
        for added in answer["addedResources"]:
            out.line(f"{added['kind'].lower()}/{added['name']}")
    elif out.format == "json":
        _print_json(session, shown, again=again)
    elif out.is_document:
        out.value(shown)
    else:
        for line in _diff_lines(answer):
            out.line(printable(line))
        for part in answer["setAside"]:
            note(f"note: {part['source']} has no effect: {printable(part['reason'])}")
    out.flush()


def _diff_lines(answer: Mapping[str, Any]) -> list[str]:
    lines = [
        f"+ {_name(one)}  source={one['source']}  generation={one['generation']}" for one in answer["addedResources"]
    ]
    for one in answer["suppressed"]:
        reason = f"  reason={one['reason']}" if one.get("reason") else ""
        until = show_moment(one["maskedUntil"])
        lines.append(f"- {_name(one['target'])}  maskedBy={one['maskedBy']}  maskedUntil={until}{reason}")
    return lines or ["no difference: the parts change no declared resource"]


@connected_without_table
@only_calls
@may_ask
async def delete(session: Session, source: SourceArgument) -> None:
    """Delete a part: its resources and masks end, until a plugin proposes them again."""
    answer = await session.call("dynamic.delete", source=source)
    gone = [f"{one['kind']}/{one['name']}" for one in answer["gave"]]
    more = f" and {len(gone) - 10} more" if len(gone) > 10 else ""
    words = f"note: {counted(len(gone), 'resource')} deleted with it: {', '.join(gone[:10])}{more}"
    session.out.outcome(answer, f"{answer['source']} deleted", name=_source, notes=[words] if gone else [])
