"""routerctl status: the node on one screen."""

from __future__ import annotations

from typing import Any

from eventd.cli.federation.links import STATUS
from eventd.cli.federation.links_table import OUTBOUND
from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.terminal.output import GAP, Column, text
from eventd.text.plural import counted

_RUNNING = "running"
_SHOWN = ("GROUP", "PEER", "STATE", "REASON", "WAITING", "LAG", "NEXT_ATTEMPT", "LAST_ERROR")
_CHECKS = (
    Column("STATUS", text("status")),
    Column("CHECK", text("name")),
    Column("DETAIL", lambda row: row.get("detail", "-")),
    Column("REMEDY", lambda row: row.get("remedy", "-")),
)


@connected
@only_calls
async def status(session: Session) -> None:
    """Show the node on one screen: its process, its groups, the links that do not run, and what doctor warns of."""
    groups = (await session.call("groups.status"))["groups"]
    links: list[dict[str, Any]] = []
    for row in groups:
        links += (await session.call("links.status", group=row["group"], peer=""))["outbound"]
    doctor = await session.call("doctor.examine")
    stopped = [link for link in links if link["state"] != _RUNNING]
    checks = [check for check in doctor["checks"] if check["status"] in ("warn", "fail")]
    if not session.out.is_table:
        answer = {"serving": session.serving(), "summary": doctor["summary"], "groups": groups}
        session.out.one((), {**answer, "links": links, "checks": checks}, name=lambda row: row["summary"]["overall"])
        return
    out, counts = session.out, doctor["summary"]
    process = session.serving()
    out.line(f"NODE    {_serving(process)}")
    numbers = GAP.join(f"{name}={counts[name]}" for name in ("pass", "warn", "fail", "skip"))
    out.line(f"DOCTOR  {counts['overall'].upper()}{GAP}{numbers}")
    running = len(links) - len(stopped)
    letters = sum(link["deadLetters"] for link in links)
    out.line(f"LINKS   {running} of {len(links)} running{GAP}{counted(letters, 'dead letter')}")
    for columns, rows in ((STATUS, groups), (_columns(), stopped), (_CHECKS, checks)):
        if rows:
            out.line()
            out.table(columns, rows)


def _columns() -> list[Column]:
    return [column for column in OUTBOUND if column.header in _SHOWN]


def _serving(process: str) -> str:
    if not process:
        return "no node serves this database now"
    return f"process {process}" if process[0].isdigit() else process
