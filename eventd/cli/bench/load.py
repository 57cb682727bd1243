"""The options that measurements share, and the `BenchPlan` made from their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eventd.cli.gateway.session import Session
from eventd.cli.program.values import Duration, Size
from eventd.text.duration import HOUR, MILLISECOND, SECOND
from eventd.text.size import MIB

if TYPE_CHECKING:
    from eventd.bench.site import BenchPlan


def option(
    name: str, metavar: str, help: str, *, kind: Any = str, default: Any = "", **about: Any
) -> dict[str, tuple[Any, Any]]:
    """Return an option as a dict of one entry: its parameter's name, and its annotation and default."""
    declared = typer.Option(name, metavar=metavar or None, help=help, **about)
    return {name.removeprefix("--").replace("-", "_"): (Annotated[kind, declared], default)}


def _number(name: str, help: str, most: int, default: int | None) -> dict[str, tuple[Any, Any]]:
    kind = int | None if default is None else int
    return option(name, "NUMBER", help, kind=kind, default=default, min=1, max=most)


_FOLDER: Final = option(
    "--folder", "DIR", "Parent of the temporary folder of the nodes, which determines the disk to measure."
)
_PEER: Final = {
    **option("--peer-server", "URL", "With --server: API of the node that receives the events."),
    **option(
        "--peer-key-file",
        "PATH",
        "File that holds the API key of the peer (default: that of --server).",
        kind=Path | None,
        default=None,
    ),
    **option(
        "--peer-listen",
        "HOST:PORT",
        "Address where the peer listens for the group (default: a free port of this machine).",
    ),
    **option(
        "--secret-file", "PATH", "File with a secret that both nodes can read (default: one created on this machine)."
    ),
    **option("--peer-database", "URL", "With --database: empty Postgres database of the second node."),
}


@dataclass(frozen=True, slots=True)
class Load:
    """The load options that a measurement offers, with their defaults; a default of 0 leaves the option out.

    For help texts: `what` is the noun for the events in `--events`, `lines` is the text of `--in-flight`, `unit` is
    the thing whose size `--size` sets. `peer` adds the options for a second node.
    """

    events: int = 0
    what: str = "events"
    duration: Duration | None = None
    batch: int = 0
    in_flight: int = 0
    lines: str = "Connections, each with one request at a time."
    unit: str = "one event as it is stored"
    peer: bool = False

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Return the offered options: by the parameter's name, the annotation and the default."""
        events = f"Number of {self.what} (default: {self.events:,})."
        duration = "Measure for this long, such as 10s, instead of a number of events."
        span = {"kind": Duration | None, "default": self.duration, "min": MILLISECOND, "max": HOUR}
        return {
            **(_number("--events", events, 100_000_000, None) if self.events else {}),
            **option("--duration", "DURATION", duration, **span),
            **option("--size", "SIZE", f"Size of {self.unit}.", kind=Size, default=Size(350), min=32, max=MIB),
            **(_number("--batch", "Events per request.", 10_000, self.batch) if self.batch else {}),
            **(_number("--in-flight", self.lines, 1000, self.in_flight) if self.in_flight else {}),
            **(_PEER if self.peer else {}),
            **_FOLDER,
        }


def refuse_written(session: Session, unused: Mapping[str, str]) -> None:
    """Raise `BadParameter` if an option, by parameter name, has no effect and is written on the command line.

    `unused` says where it has none.
    """
    for name, where in unused.items():
        if name in session.written | session.written_own:
            raise typer.BadParameter(f"--{name.replace('_', '-')} has no effect {where}: leave it out")


def make_plan(session: Session, load: Load, given: dict[str, Any]) -> BenchPlan:
    """Return the plan of a measurement from the values `given` for its options. Raises `BadParameter`, `Invalid`.

    Removes some values from `given`.
    """
    from eventd.bench.site import BenchPlan

    events, duration = given.pop("events", None), given.pop("duration")
    amount: dict[str, Any]
    if duration is None:
        amount = {"events": events or load.events}
    elif events is None:
        amount = {"events": 0, "seconds": duration / SECOND}
    else:
        raise typer.BadParameter("--events and --duration exclude each other: leave one out")
    peer = {name: given.pop(name) for name in _PEER if name in given}
    return BenchPlan(**amount, **given, **_nodes(session, given["folder"], **peer))


def _nodes(
    session: Session,
    folder: str,
    *,
    peer_server: str = "",
    peer_key_file: Path | None = None,
    peer_listen: str = "",
    secret_file: str = "",
    peer_database: str = "",
) -> dict[str, Any]:
    """Return the arguments of `BenchPlan` about its nodes. Raises `BadParameter`, and `Invalid` for a bad key."""
    from eventd.settings.values import read_endpoint

    try:
        listen = tuple(read_endpoint(peer_listen)) if peer_listen else None
    except ValueError as error:
        raise typer.BadParameter(f"--peer-listen: {error}") from None
    node = session.node
    running = {"--peer-key-file": peer_key_file, "--peer-listen": peer_listen, "--secret-file": secret_file}
    started = {"--folder": folder, "--database": node.database, "--peer-database": peer_database}
    for option, value in running.items():
        if value and not peer_server:
            raise typer.BadParameter(f"{option} is for running nodes: it needs both --server URL and --peer-server URL")
    if peer_server and not node.server:
        raise typer.BadParameter("--peer-server needs --server, which names the sending node")
    for option, value in started.items():
        if value and node.server:
            raise typer.BadParameter(
                f"{option} is for nodes that the command starts, and --server names a running one: leave one out"
            )
    key = node.read_key() if node.server else ""
    return {
        "servers": tuple(server for server in (node.server, peer_server) if server),
        "key": key,
        "peer_key": replace(node, key="", key_file=peer_key_file).read_key() if peer_key_file is not None else key,
        "tls": node.read_tls() if node.server else None,
        "secret_file": secret_file,
        "peer_listen": listen,
        "database": _database("--database", node.database or ""),
        "peer_database": _database("--peer-database", peer_database),
    }


def _database(option: str, url: str) -> str:
    """Return `url` if it names a Postgres database, "" for SQLite in a temporary file. Raises `BadParameter`."""
    from eventd.settings.values import read_database

    if url in ("", "sqlite"):
        return ""
    if url.startswith("sqlite:"):
        raise typer.BadParameter(
            f"{option}: each run creates its own SQLite file: leave it out, or choose the disk with --folder"
        )
    try:
        return read_database(url)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
