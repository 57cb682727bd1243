"""Shared options, the groups that a command is about, and lists read page by page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_group, complete_peer
from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import note
from eventd.errors import Forbidden, NotFound

MOST = 1000
"""The largest `limit` that a list operation accepts."""

GroupOption = Annotated[
    str,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        autocompletion=complete_group,
        help="The group. Optional if only one is declared.",
    ),
]
GroupsOption = Annotated[
    str,
    typer.Option(
        "--group", "-g", metavar="NAME", autocompletion=complete_group, help="Only this group (default: all)."
    ),
]
PeerFilter = Annotated[
    str, typer.Option("--peer", metavar="NODE", autocompletion=complete_peer, help="Only this peer, by its node name.")
]
TypeFilter = Annotated[list[str] | None, typer.Option("--type", help="Only events of this type; repeatable.")]
SinceFilter = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Only events observed at or after TIME: RFC 3339, or an age such as 15m."
    ),
]
UntilFilter = Annotated[str, typer.Option("--until", metavar="TIME", help="Only events observed at or before TIME.")]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        min=0,
        help="Maximum rows per group (0: no limit); the newest, unless --oldest or --after says otherwise.",
    ),
]
OldestOption = Annotated[bool, typer.Option("--oldest", help="Show the oldest rows instead of the newest.")]
BeforeOption = Annotated[
    str, typer.Option("--before", metavar="TOKEN", help="Show the rows before TOKEN, which an earlier list printed.")
]
AfterOption = Annotated[
    str, typer.Option("--after", metavar="TOKEN", help="Show the rows after TOKEN, the oldest first.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Keep watching for changes (Ctrl-C stops).")]


async def all_groups(session: Session, group: str) -> list[str]:
    """Return `group` alone in a list; if it is empty, the names of all declared groups."""
    if group:
        return [group]
    status = await session.call("groups.status")
    return [row["group"] for row in status["groups"]]


async def one_group(session: Session, group: str) -> str:
    """Return `group`; if it is empty, the only declared one. Raises NotFound for none, BadParameter for several."""
    group = group or session.node.group
    try:
        names = await all_groups(session, group)
    except Forbidden as error:  # a key that may only write, or only use some groups, cannot list the groups
        error.hint = f"{error.hint}; name the group with --group" if error.hint else "name the group with --group"
        raise
    if not names:
        raise NotFound("no EventGroup is declared", hint="declare one: routerctl apply -f FILE")
    if len(names) > 1:
        raise typer.BadParameter(f"name the group with --group: {', '.join(names)}")
    return names[0]


class Pages:
    """Reads a list operation, group by group: the newest `limit` entries of each (0: all), the oldest of these first.

    `oldest` selects the oldest entries instead, `after` the first ones after a token or id, `before` the last ones
    before it; `newest_first` reverses the order, and `after` then selects older ones. `note_rest` tells how to list
    more.
    """

    def __init__(
        self,
        session: Session,
        operation: str,
        member: str,
        *,
        limit: int,
        after: Any,
        before: Any = "",
        oldest: bool = False,
        newest_first: bool = False,
    ) -> None:
        if sum(map(bool, (before, oldest, after and not newest_first))) > 1:
            raise typer.BadParameter("--before, --after and --oldest exclude each other: leave all but one out")
        self.rows: list[dict[str, Any]] = []
        self._session = session
        self._operation = operation
        self._member = member
        self._limit = limit
        self._place = before or after
        self._backwards = newest_first or bool(before) or not (oldest or after or not limit)
        self._newest_first = newest_first
        self._notes: list[str] = []

    async def read(self, group: str, **params: Any) -> None:
        """Read the entries of a group page by page, and add them to `rows`."""
        place = self._place
        rows: list[dict[str, Any]] = []
        while True:
            wanted = min(MOST, self._limit - len(rows)) if self._limit else MOST
            given = {"limit": wanted, "after": place, **({"newest": True} if self._backwards else {})}
            answer = await self._session.call(self._operation, group=group, **given, **params)
            rows += [row if "group" in row else {**row, "group": group} for row in answer[self._member]]
            place = answer["next"]
            if gap := answer.get("gap"):
                self._notes.append(f"gap: group {group}: {gap['message']}")
            if place is None or (self._limit and len(rows) >= self._limit):
                break
        if self._backwards and not self._newest_first:
            rows.sort(key=lambda row: row.get("seq") or row["id"])  # an event's deliveries stay in order
        self.rows += rows
        if place is not None:
            what, option = ("older rows", "--before") if self._backwards else ("more rows", "--after")
            option = f"--newest {option}" if self._newest_first else option
            self._notes.append(
                f"note: group {group} has {what}: continue with --group {group} {option} {place} (--limit 0 shows all)"
            )

    def note_rest(self) -> None:
        """Print a note for each group with further entries, and for each gap."""
        for words in self._notes:
            note(words)
