"""routerctl audit acknowledge: add, list, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.audit.options import checked_by
from eventd.cli.gateway.lake_choice import LakeOption, lake_storage
from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import Invalid, NotFound
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.audit.report.findings import Finding
    from eventd.audit.review.acknowledgements import Acknowledgement, Withdrawal

ACKNOWLEDGED = (
    Column("ID", text("id")),
    Column("AT", moment("at")),
    Column("BY", text("by")),
    Column("FINDINGS", lambda row: str(row["count"])),
    Column("EVENTS", lambda row: f"{row['ids']:,}"),
    Column("REASON", text("reason")),
    Column("WITHDRAWN_AT", moment("withdrawnAt"), wide=True),
    Column("WITHDRAWN_BY", text("withdrawnBy"), wide=True),
    Column("WITHDRAWAL_REASON", text("withdrawalReason"), wide=True),
)

ByOption = Annotated[str, typer.Option("--by", metavar="NAME", help="Person or program that is responsible for it.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for readers of later reports.")]


def _check_kinds(kinds: Sequence[str]) -> None:
    from eventd.audit.report.findings import Kind

    if wrong := [one for one in kinds if one not in set(Kind)]:
        raise Invalid(f"{wrong[0]!r} is not a kind of finding", hint=f"write one of {', '.join(Kind)}")


@offline("output")
def add(
    session: Session,
    report: Annotated[
        str,
        typer.Argument(metavar="REPORT", help="Report with the findings: its folder or address, or its report.json."),
    ],
    by: ByOption,
    reason: ReasonOption,
    lake: LakeOption = "",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Findings of this kind; repeatable.", callback=checked_by(_check_kinds)
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Findings of this group.")] = "",
    source: Annotated[str, typer.Option("--source", metavar="NODE", help="Findings with this source.")] = "",
    peer: Annotated[str, typer.Option("--peer", metavar="NODE", help="Findings with this peer.")] = "",
    id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this id of the findings; repeatable.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All findings of the report.")] = False,
) -> None:
    """Acknowledge findings of a report, with the reason.

    Later audits of the lake mark them, and they meet no condition of --fail-on; the verdict does not change.
    """
    from eventd.audit.review.acknowledgements import acknowledge
    from eventd.audit.review.earlier import read_earlier
    from eventd.audit.review.marks import check_baseline
    from eventd.lake.storage import open_lake
    from eventd.runtime.chance import SYSTEM

    filters = {"--kind": kind, "--group": group, "--source": source, "--peer": peer, "--id": id}
    given = [option for option, value in filters.items() if value]
    if every and given:
        raise typer.BadParameter(f"--all excludes {' and '.join(given)}: leave one of them out")
    if not every and not given:
        raise typer.BadParameter("no findings are chosen: add --kind, --group, --source, --peer or --id, or else --all")
    storage, earlier = lake_storage(lake), read_earlier(report)
    check_baseline(earlier, open_lake(storage).id)
    wanted = {"group": group, "source": source, "peer": peer}
    matching = [
        one
        for one in earlier.findings
        if (not kind or one.kind.value in kind)
        and all(getattr(one, name) == value for name, value in wanted.items() if value)
    ]
    chosen = _only(matching, id) if id else matching
    if not chosen:
        raise NotFound(
            f"no finding of the report in {earlier.url} matches", hint="leave out an option, or see report.html"
        )
    made = acknowledge(storage, chosen, by=by, reason=reason, now=_now(), chance=SYSTEM)
    session.out.outcome(
        _row(made),
        f"acknowledgement {made.id}: {counted(len(chosen), 'finding')}, {counted(made.events, 'event')}",
        name=lambda row: str(row["id"]),
    )


def _only(findings: Sequence[Finding], ids: Sequence[str]) -> list[Finding]:
    """Return the findings that have any of these ids, reduced to these ids.

    Raises NotFound for an id that no finding has.
    """
    from msgspec.structs import replace

    held = {one for finding in findings for one in finding.ids}
    if missing := [one for one in ids if one not in held]:
        raise NotFound(f"no chosen finding has the id {missing[0]}", hint="leave out an option, or see report.html")
    wanted = frozenset(ids)
    parts = [(finding, tuple(one for one in finding.ids if one in wanted)) for finding in findings]
    return [
        replace(finding, ids=part, count=0, evidence=tuple(one for one in finding.evidence if one.id in wanted))
        for finding, part in parts
        if part
    ]


@offline(*SHOW)
def list_acknowledgements(
    session: Session,
    lake: LakeOption = "",
    every: Annotated[bool, typer.Option("--all", help="Also those that were withdrawn.")] = False,
) -> None:
    """List the acknowledgements of a lake."""
    from eventd.audit.review.acknowledgements import read_acknowledgements

    known = read_acknowledgements(lake_storage(lake))
    rows = [_row(one) for one in known.active]
    rows += [_row(one, end) for one, end in known.withdrawn] if every else []
    session.out.rows(ACKNOWLEDGED, rows, name=lambda row: str(row["id"]))
    for path, reason in known.unreadable.items():
        note(f"note: {path} {reason}: it does not count")


@offline("output")
def remove(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the acknowledgement.")],
    by: ByOption,
    reason: ReasonOption,
    lake: LakeOption = "",
) -> None:
    """Withdraw an acknowledgement, with the reason.

    Its findings count again. The acknowledgement stays in the lake, with its withdrawal.
    """
    from eventd.audit.review.acknowledgements import withdraw

    made = withdraw(lake_storage(lake), id, by=by, reason=reason, now=_now())
    session.out.outcome(
        {"id": made.id, "by": made.by, "reason": made.reason, "at": _time(made.at)},
        f"acknowledgement {made.id} withdrawn",
        name=lambda row: str(row["id"]),
    )


def _row(one: Acknowledgement, end: Withdrawal | None = None) -> dict[str, Any]:
    import msgspec

    row = {"id": one.id, "at": _time(one.at), "by": one.by, "reason": one.reason, "count": len(one.findings)}
    row |= {"ids": one.events, "findings": msgspec.to_builtins(one.findings)}
    if end is None:
        return row | {"withdrawnAt": None, "withdrawnBy": "", "withdrawalReason": ""}
    return row | {"withdrawnAt": _time(end.at), "withdrawnBy": end.by, "withdrawalReason": end.reason}


def _now() -> int:
    from eventd.runtime.clock import SystemClock

    return SystemClock().now()


def _time(micros: int) -> str:
    from federation.event import format_time

    return format_time(micros)
