"""routerctl bench: the measurements and their options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eventd.cli.bench.measurement import Measurement, measurement
from eventd.cli.gateway.options import REMOTE
from eventd.cli.gateway.session import Session
from eventd.cli.program.values import Duration, Size
from eventd.cli.terminal.output import count
from eventd.text.duration import HOUR, MILLISECOND, SECOND
from eventd.text.size import MIB

if TYPE_CHECKING:
    from eventd.bench.site import BenchPlan


def _events(usual: int, what: str = "events") -> Any:
    """Return the option for the number of events, with the measurement's default in its help."""
    text = f"Number of {what} (default: {usual:,})."
    return typer.Option("--events", metavar="NUMBER", min=1, max=100_000_000, help=text)


SIZE = Size(350)
TEN_SECONDS = Duration.read("10s")

DurationOption = Annotated[
    Duration | None,
    typer.Option(
        "--duration",
        metavar="DURATION",
        min=MILLISECOND,
        max=HOUR,
        help="Measure for this long, such as 10s, instead of a number of events.",
    ),
]
SizeOption = Annotated[
    Size, typer.Option("--size", metavar="SIZE", min=32, max=MIB, help="Size of one event as it is stored.")
]
BatchOption = Annotated[int, typer.Option("--batch", metavar="NUMBER", min=1, max=10_000, help="Events per request.")]
InFlightOption = Annotated[
    int,
    typer.Option(
        "--in-flight", metavar="NUMBER", min=1, max=1000, help="Connections, each with one request at a time."
    ),
]
Durability = Literal["full", "normal"]
DurabilityOption = Annotated[
    Durability,
    typer.Option(
        "--durability",
        metavar="CLASS",
        help="Durability of topics: full (fsync) flushes to disk before it acknowledges; normal (disk) survives a crash"
        " of the node, but perhaps not a power failure.",
    ),
]
FolderOption = Annotated[
    str,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Parent of the temporary folder of the nodes, which determines the disk to measure.",
    ),
]

PeerServerOption = Annotated[
    str, typer.Option("--peer-server", metavar="URL", help="With --server: API of the node that receives the events.")
]
PeerKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--peer-key-file", metavar="PATH", help="File that holds the API key of the peer (default: that of --server)."
    ),
]
PeerListenOption = Annotated[
    str,
    typer.Option(
        "--peer-listen",
        metavar="HOST:PORT",
        help="Address where the peer listens for the group (default: a free port of this machine).",
    ),
]
SecretOption = Annotated[
    str,
    typer.Option(
        "--secret-file",
        metavar="PATH",
        help="File with a secret that both nodes can read (default: one created on this machine).",
    ),
]
PeerDatabaseOption = Annotated[
    str,
    typer.Option("--peer-database", metavar="URL", help="With --database: empty Postgres database of the second node."),
]


@measurement(*REMOTE, "database")
def ingest(
    session: Session,
    events: Annotated[int | None, _events(200_000)] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    to: Annotated[
        Literal["group", "topic"],
        typer.Option("--to", metavar="TARGET", help="group: emit to a group; topic: write to a topic."),
    ] = "group",
    window: Annotated[
        int,
        typer.Option(
            "--window",
            metavar="COUNT",
            min=0,
            max=10_000,
            help="Emit single events with the Python client, COUNT at a time; ignores --batch and"
            " --in-flight. 0: batches.",
        ),
    ] = 0,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Measurement:
    """Measure how many events per second a node accepts over its API, and the latency of a request."""
    from eventd.bench.ingest import Ingest

    if window and to == "topic":
        raise typer.BadParameter("--window emits events to a group: leave out --to topic")
    if to == "group" and durability != "full":
        raise typer.BadParameter("events of a group are always flushed: --durability normal needs --to topic")
    how_many = _amount(events, duration, 200_000)
    options = {"size": int(size), "batch": batch, "in_flight": in_flight, "durability": durability, "folder": folder}
    return Measurement(Ingest(to, window=window), _wanted(session, **how_many, **options))


@measurement(*REMOTE, "database")
def federation(
    session: Session,
    events: Annotated[int | None, _events(200_000)] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Measurement:
    """Measure how many events per second a node receives while it catches up with another one."""
    from eventd.bench.federation import Federation

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": int(size), "batch": batch, "in_flight": in_flight, "folder": folder}
    return Measurement(Federation(), _wanted(session, **_amount(events, duration, 200_000), **options, **peer))


@measurement(*REMOTE, "database")
def latency(
    session: Session,
    events: Annotated[int | None, _events(500)] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Measurement:
    """Measure the latency of one event, from the emitting call at one node to a watcher at the other."""
    from eventd.bench.latency import Latency

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": int(size), "batch": 1, "in_flight": 1, "folder": folder}
    return Measurement(Latency(), _wanted(session, **_amount(events, duration, 500), **options, **peer))


@measurement()
def fanout(
    session: Session,
    peers: Annotated[int, typer.Option("--peers", metavar="NUMBER", min=1, max=64, help="Number of peers.")] = 4,
    dead: Annotated[
        int, typer.Option("--dead", metavar="NUMBER", min=0, max=63, help="Number of those peers that do not listen.")
    ] = 2,
    events: Annotated[int | None, _events(50_000)] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    folder: FolderOption = "",
) -> Measurement:
    """Measure how fast one node sends events to many peers, some of them dead."""
    from eventd.bench.fanout import Fanout

    if dead >= peers:
        raise typer.BadParameter(f"--dead {dead}: at least one of the {count(peers, 'peer')} must be alive")
    options = {"size": int(size), "batch": batch, "in_flight": in_flight, "folder": folder}
    return Measurement(Fanout(peers, dead), _wanted(session, **_amount(events, duration, 50_000), **options))


@measurement(*REMOTE, "database")
def watch(
    session: Session,
    watchers: Annotated[
        int, typer.Option("--watchers", metavar="NUMBER", min=1, max=10_000, help="Number of watchers of the topic.")
    ] = 100,
    events: Annotated[int | None, _events(100, "writes")] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Measurement:
    """Measure how soon the watchers of a topic receive a record."""
    from eventd.bench.watch import Watch

    options = {"size": int(size), "batch": 1, "in_flight": 1, "durability": durability, "folder": folder}
    return Measurement(Watch(watchers), _wanted(session, **_amount(events, duration, 100), **options))


@measurement(*REMOTE, "database")
def routers(
    session: Session,
    routers: Annotated[
        int, typer.Option("--routers", metavar="NUMBER", min=1, max=1000, help="Number of routers from one topic.")
    ] = 10,
    events: Annotated[int | None, _events(5_000, "records of the source")] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    batch: BatchOption = 16,
    in_flight: InFlightOption = 1,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Measurement:
    """Measure how fast routers copy one topic to others, and how soon a watcher receives a copy."""
    from eventd.bench.routers import Routers

    options = {"size": int(size), "batch": batch, "in_flight": in_flight, "durability": durability, "folder": folder}
    return Measurement(Routers(routers), _wanted(session, **_amount(events, duration, 5_000), **options))


@measurement("database")
def subscriptions(
    session: Session,
    subscriptions: Annotated[
        int,
        typer.Option(
            "--subscriptions", metavar="NUMBER", min=1, max=500, help="Number of subscriptions that share the events."
        ),
    ] = 10,
    events: Annotated[int | None, _events(5_000)] = None,
    duration: DurationOption = None,
    size: SizeOption = SIZE,
    folder: FolderOption = "",
) -> Measurement:
    """Measure how soon an event changes the effective configuration, through a plugin."""
    from eventd.bench.subscriptions import Subscriptions

    options = {"size": int(size), "batch": 256, "in_flight": 1, "folder": folder}
    return Measurement(Subscriptions(subscriptions), _wanted(session, **_amount(events, duration, 5_000), **options))


@measurement(*REMOTE, "database")
def mixed(
    session: Session,
    watchers: Annotated[
        int, typer.Option("--watchers", metavar="NUMBER", min=1, max=10_000, help="Number of watchers of a topic.")
    ] = 10,
    duration: DurationOption = TEN_SECONDS,
    size: SizeOption = SIZE,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 2,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Measurement:
    """Measure emitting, sending to another node and watching a topic at the same time."""
    from eventd.bench.mixed import Mixed

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": int(size), "batch": batch, "in_flight": in_flight, "folder": folder}
    return Measurement(Mixed(watchers), _wanted(session, **_amount(None, duration, 0), **options, **peer))


def _peer(server: str, key_file: Path | None, listen: str, secret_file: str, database: str) -> dict[str, Any]:
    """Return the parameters of the second node. Raises `BadParameter` for options that need a running one."""
    from eventd.settings.values import read_endpoint

    try:
        place = read_endpoint(listen) if listen else None
    except ValueError as error:
        raise typer.BadParameter(f"--peer-listen: {error}") from None
    for option, value in (("--peer-key-file", key_file), ("--peer-listen", listen), ("--secret-file", secret_file)):
        if value and not server:
            raise typer.BadParameter(f"{option} is for running nodes: add --server URL --peer-server URL")
    return {
        "peer_server": server,
        "peer_key_file": key_file,
        "peer_listen": tuple(place) if place else None,
        "secret_file": secret_file,
        "peer_database": database,
    }


def _amount(events: int | None, duration: Duration | None, usual: int) -> dict[str, Any]:
    """Return the number of events or the duration as parameters of the plan. Raises `BadParameter` for both."""
    if duration is None:
        return {"events": events or usual}
    if events is not None:
        raise typer.BadParameter("--events and --duration exclude each other: leave one out")
    return {"events": 0, "seconds": duration / SECOND}


def _wanted(session: Session, **options: Any) -> BenchPlan:
    """Return the plan, with the nodes that the options name. Raises `BadParameter` for contradicting options."""
    from eventd.bench.site import BenchPlan

    node, second = session.node, options.pop("peer_server", "")
    if second and not node.server:
        raise typer.BadParameter("--peer-server needs --server, which names the sending node")
    servers = tuple(server for server in (node.server, second) if server)
    for name in ("folder", "database", "peer_database"):
        if servers and (options.get(name) or (name == "database" and node.database)):
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is for nodes that the command starts, but --server names a running one")
    options["database"] = _database("--database", node.database or "")
    options["peer_database"] = _database("--peer-database", options.get("peer_database", ""))
    peer_key_file = options.pop("peer_key_file", None)
    key = node.read_key() if servers else ""
    peer_key = replace(node, key="", key_file=peer_key_file).read_key() if peer_key_file is not None else key
    return BenchPlan(servers=servers, key=key, peer_key=peer_key, **options)


def _database(option: str, url: str) -> str:
    """Return the URL of a Postgres database; empty means SQLite in a temporary file. Raises `BadParameter`."""
    from eventd.settings.values import read_database

    if url in ("", "sqlite"):
        return ""
    if url.startswith("sqlite:"):
        raise typer.BadParameter(f"{option}: each run creates its own SQLite file: use --folder to choose the disk")
    try:
        return read_database(url)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
