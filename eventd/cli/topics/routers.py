"""routerctl router: put, get, list, delete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask
from eventd.cli.terminal.output import Column, text
from eventd.errors import Invalid, NotFound

if TYPE_CHECKING:
    from eventd.client import RouterState

ROUTERS = (
    Column("NAME", text("router")),
    Column("SOURCE", text("source")),
    Column("DEST", text("dest")),
    Column("GUARANTEE", text("guarantee")),
    Column("FAN_IN", lambda row: "yes" if row["fan_in"] else "no"),
    Column("FORWARDED", lambda row: str(row["forwarded_total"])),
)
_FILTER = Column("FILTER", lambda row: show_filter(row["filter"]))
_MANAGED = Column("MANAGED", text("managed"))
_ALLOW_CYCLE = Column("ALLOW_CYCLE", lambda row: "yes" if row["allow_cycle"] else "no", wide=True)
LISTED = (*ROUTERS, _MANAGED, replace(_FILTER, wide=True), _ALLOW_CYCLE)
ONE = (
    *ROUTERS,
    Column("LAG", lambda row: str(row["lag"])),
    Column("STATE", lambda row: f"{row['state']} ({row['reason']})" if row["reason"] else row["state"] or "-"),
    Column("REFUSED", lambda row: str(row["refused_total"])),
    _MANAGED,
    _FILTER,
    _ALLOW_CYCLE,
    Column("KEEPS", lambda row: _keeps(row), wide=True),
)

RouterArgument = Annotated[str, typer.Argument(metavar="ROUTER", help="Name of the router, such as 'a->b'.")]


def show_filter(value: Any) -> str:
    """Return the filter of a router as text; `-` if it has none."""
    return "-" if value is None else str(value) if isinstance(value, str) else " ".join(map(str, value))


def _keeps(row: Mapping[str, Any]) -> str:
    return ",".join(name for name in ("node", "tag") if row[f"preserve_{name}"]) or "-"


def _name(row: Mapping[str, Any]) -> str:
    return str(row["router"])


def show_router(router: RouterState) -> dict[str, Any]:
    """Return the router under the names of the API, with defaults and without `created`."""
    import msgspec

    shown = msgspec.structs.asdict(router)
    shown.pop("created")
    return shown


@connected_without_table
async def put(
    session: Session,
    router: RouterArgument,
    source: Annotated[
        str, typer.Option("--source", metavar="TOPIC", help="Topic to copy from (default: from a name like 'a->b').")
    ] = "",
    dest: Annotated[
        str, typer.Option("--dest", metavar="TOPIC", help="Topic to copy to (default: from a name like 'a->b').")
    ] = "",
    filter: Annotated[
        str,
        typer.Option("--filter", metavar="TAG", help="Only records with this tag; a trailing * matches any ending."),
    ] = "",
    fan_in: Annotated[
        bool, typer.Option("--fan-in", help="Keep record ids, so that no record is copied to a topic twice.")
    ] = False,
    allow_cycle: Annotated[
        bool, typer.Option("--allow-cycle", help="Allow a cycle of routers; records pass it a bounded number of times.")
    ] = False,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Name the source record in the meta of each copy, as _topics_router.")
    ] = False,
    no_node: Annotated[bool, typer.Option("--no-node", help="Leave the node out of copies.")] = False,
    no_tag: Annotated[bool, typer.Option("--no-tag", help="Leave the tag out of copies.")] = False,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not create a missing destination topic.")] = False,
    map: Annotated[
        str,
        typer.Option(
            "--map", metavar="JSON", help="How a record becomes an event, if the destination is a group's topic."
        ),
    ] = "",
) -> None:
    """Create a router, which copies new records of one topic to another, or replace all its options."""
    from eventd.client import RouterSpec
    from eventd.egress.routers.drafts import ends_of

    source, dest = ends_of(router, source, dest)
    spec = RouterSpec(
        source=source,
        dest=dest,
        preserve_node=not no_node,
        preserve_tag=not no_tag,
        create_dest=not no_create,
        filter=filter or None,
        allow_cycle=allow_cycle,
        guarantee="exactly_once" if exactly_once else "at_least_once",
        fan_in=fan_in,
        map=_read_map(map),
    )
    session.make = True
    client = await session.client()
    state = await client.routers.put(router, spec)
    done = f"router/{router} {'created' if state.created else 'configured'}"
    shown = {name: value for name, value in show_router(state).items() if name != "managed"}
    session.out.outcome({**shown, "created": state.created}, done, name=_name)


def _read_map(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Invalid(f"--map is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Invalid("--map must be an object", hint='such as {"type": "${tag}"}')
    return value


@connected
async def get(session: Session, router: RouterArgument) -> None:
    """Show a router, its lag and how many records it has copied."""
    client = await session.client()
    session.out.one(ONE, show_router(await client.routers.get(router)), name=_name)


@connected
async def list_routers(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only names that start with PREFIX.")] = "",
    source: Annotated[str, typer.Option("--source", metavar="TOPIC", help="Only routers from this topic.")] = "",
    dest: Annotated[str, typer.Option("--dest", metavar="TOPIC", help="Only routers to this topic.")] = "",
) -> None:
    """List routers, sorted by name. `router get` shows one in detail, `topology check` draws the graph."""
    client = await session.client()
    found = [router async for router in client.routers.list(prefix, source=source, dest=dest)]
    names = ("router", "source", "dest", "guarantee", "filter", "allow_cycle", "fan_in", "forwarded_total", "managed")
    session.out.rows(LISTED, [{name: getattr(each, name) for name in names} for each in found], name=_name)


@connected_without_table
@may_ask
async def delete(
    session: Session,
    router: RouterArgument,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if the router does not exist.")
    ] = False,
) -> None:
    """Delete a router. The records that it has copied stay."""
    client = await session.client()
    session.confirm_ending(f"delete the router {router}")
    answer = await client.routers.delete(router)
    if not answer.deleted and not ignore_not_found:
        raise NotFound(f"router {router} does not exist", hint="`routerctl router list` shows the routers")
    done = [f"router/{router} deleted"] if answer.deleted else []
    session.out.outcome({"router": answer.router, "deleted": answer.deleted}, *done, name=_name)
