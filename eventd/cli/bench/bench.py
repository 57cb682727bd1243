"""routerctl bench: what can be measured, and how it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eventd.cli.bench.measurement import Job, measurement
from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import count
from eventd.errors import Invalid

if TYPE_CHECKING:
    from eventd.bench.site import Wanted


def _events(usual: int, what: str = "events") -> Any:
    """How many of them a measurement takes unless something else is said."""
    told = f"How many {what}; {usual:,} if nothing is said."
    return typer.Option("--events", metavar="NUMBER", min=1, max=100_000_000, help=told)


DurationOption = Annotated[
    str, typer.Option("--duration", metavar="TIME", help="Instead of a number of events: for so long, such as 10s.")
]
SizeOption = Annotated[
    int, typer.Option("--size", metavar="BYTES", min=32, max=1 << 20, help="Bytes of one event as it is stored.")
]
BatchOption = Annotated[
    int, typer.Option("--batch", metavar="NUMBER", min=1, max=10_000, help="Events of one request.")
]
InFlightOption = Annotated[
    int, typer.Option("--in-flight", metavar="NUMBER", min=1, max=1000, help="Connections, each with one request.")
]
Durability = Literal["full", "normal"]
DurabilityOption = Annotated[
    Durability,
    typer.Option(
        "--durability",
        metavar="CLASS",
        help="Of a topic: full is flushed to the disk before it is acknowledged (fsync), normal outlives the node and"
        " perhaps not the power (disk).",
    ),
]
FolderOption = Annotated[
    str, typer.Option("--folder", metavar="DIR", help="Where the nodes get their temporary folder: which disk.")
]

PeerServerOption = Annotated[
    str, typer.Option("--peer-server", metavar="URL", help="With --server: the node that the events go to.")
]
PeerKeyOption = Annotated[
    Path | None,
    typer.Option("--peer-key-file", metavar="PATH", help="Its key, where it is another than that of --server."),
]
PeerListenOption = Annotated[
    str,
    typer.Option(
        "--peer-listen", metavar="HOST:PORT", help="Where it is to listen for the group; a free port of this machine."
    ),
]
SecretOption = Annotated[
    str,
    typer.Option(
        "--secret-file", metavar="PATH", help="Secret that both nodes can read there; one of this machine's own."
    ),
]
PeerDatabaseOption = Annotated[
    str, typer.Option("--peer-database", metavar="URL", help="The second node's database, with --database.")
]


@measurement
def ingest(
    session: Session,
    events: Annotated[int | None, _events(200_000)] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    to: Annotated[
        Literal["group", "topic"], typer.Option("--to", metavar="WHAT", help="Into a group, or into a topic.")
    ] = "group",
    window: Annotated[
        int,
        typer.Option(
            "--window",
            metavar="COUNT",
            min=0,
            max=10_000,
            help="Single events through the client for Python programs, so many at a time; --batch and --in-flight do"
            " not count then. 0: batches.",
        ),
    ] = 0,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Job:
    """Measure how many events a second one node takes over its API, and how long a request waits."""
    from eventd.bench.ingest import Ingest

    if window and to == "topic":
        raise typer.BadParameter("--window is for events of a group: leave out --to topic")
    if to == "group" and durability != "full":
        raise typer.BadParameter("events of a group are always flushed: --durability normal needs --to topic")
    how_many = _amount(events, duration, 200_000)
    options = {"size": size, "batch": batch, "in_flight": in_flight, "durability": durability, "folder": folder}
    return Job(Ingest(to, window=window), _wanted(session, **how_many, **options))


@measurement
def federation(
    session: Session,
    events: Annotated[int | None, _events(200_000)] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Job:
    """Measure how many events a second a node catches up with that was away while another was filled."""
    from eventd.bench.federation import Federation

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": size, "batch": batch, "in_flight": in_flight, "folder": folder}
    return Job(Federation(), _wanted(session, **_amount(events, duration, 200_000), **options, **peer))


@measurement
def latency(
    session: Session,
    events: Annotated[int | None, _events(500)] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Job:
    """Measure how long one event takes, from the call that writes it at one node until it is heard at the other."""
    from eventd.bench.latency import Latency

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": size, "batch": 1, "in_flight": 1, "folder": folder}
    return Job(Latency(), _wanted(session, **_amount(events, duration, 500), **options, **peer))


@measurement
def fanout(
    session: Session,
    peers: Annotated[int, typer.Option("--peers", metavar="NUMBER", min=1, max=64, help="How many peers.")] = 4,
    dead: Annotated[
        int, typer.Option("--dead", metavar="NUMBER", min=0, max=63, help="Of these: where nobody listens.")
    ] = 2,
    events: Annotated[int | None, _events(50_000)] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 4,
    folder: FolderOption = "",
) -> Job:
    """Measure how fast one node sends the same to many peers, some of them dead."""
    from eventd.bench.fanout import Fanout

    if dead >= peers:
        raise typer.BadParameter(f"--dead {dead}: at least one of the {count(peers, 'peer')} must live")
    if session.where.server or session.where.database:
        raise typer.BadParameter("fanout starts nodes of its own, on SQLite: leave out --server and --database")
    options = {"size": size, "batch": batch, "in_flight": in_flight, "folder": folder}
    return Job(Fanout(peers, dead), _wanted(session, **_amount(events, duration, 50_000), **options))


@measurement
def watch(
    session: Session,
    watchers: Annotated[
        int, typer.Option("--watchers", metavar="NUMBER", min=1, max=10_000, help="How many watch the topic.")
    ] = 100,
    events: Annotated[int | None, _events(100, "writes")] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Job:
    """Measure how soon the watchers of a topic hear of a write."""
    from eventd.bench.watch import Watch

    options = {"size": size, "batch": 1, "in_flight": 1, "durability": durability, "folder": folder}
    return Job(Watch(watchers), _wanted(session, **_amount(events, duration, 100), **options))


@measurement
def routers(
    session: Session,
    routers: Annotated[
        int, typer.Option("--routers", metavar="NUMBER", min=1, max=1000, help="How many routers from one topic.")
    ] = 10,
    events: Annotated[int | None, _events(5_000, "records of the source")] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    batch: BatchOption = 16,
    in_flight: InFlightOption = 1,
    durability: DurabilityOption = "full",
    folder: FolderOption = "",
) -> Job:
    """Measure how fast routers copy one topic into others, and how soon a copy is heard."""
    from eventd.bench.routers import Routers

    options = {"size": size, "batch": batch, "in_flight": in_flight, "durability": durability, "folder": folder}
    return Job(Routers(routers), _wanted(session, **_amount(events, duration, 5_000), **options))


@measurement
def subscriptions(
    session: Session,
    subscriptions: Annotated[
        int, typer.Option("--subscriptions", metavar="NUMBER", min=1, max=500, help="How many share the events.")
    ] = 10,
    events: Annotated[int | None, _events(5_000)] = None,
    duration: DurationOption = "",
    size: SizeOption = 350,
    folder: FolderOption = "",
) -> Job:
    """Measure how soon an event is in the effective configuration, through a plugin."""
    from eventd.bench.subscriptions import Subscriptions

    if session.where.server:
        raise typer.BadParameter("subscriptions brings a plugin along, for a node of its own: leave out --server")
    options = {"size": size, "batch": 256, "in_flight": 1, "folder": folder}
    return Job(Subscriptions(subscriptions), _wanted(session, **_amount(events, duration, 5_000), **options))


@measurement
def mixed(
    session: Session,
    watchers: Annotated[
        int, typer.Option("--watchers", metavar="NUMBER", min=1, max=10_000, help="How many watch a topic meanwhile.")
    ] = 10,
    duration: DurationOption = "10s",
    size: SizeOption = 350,
    batch: BatchOption = 256,
    in_flight: InFlightOption = 2,
    peer_server: PeerServerOption = "",
    peer_key_file: PeerKeyOption = None,
    peer_listen: PeerListenOption = "",
    secret_file: SecretOption = "",
    peer_database: PeerDatabaseOption = "",
    folder: FolderOption = "",
) -> Job:
    """Measure all at once for a while: events written, sent to another node, and a topic that is watched."""
    from eventd.bench.mixed import Mixed

    peer = _peer(peer_server, peer_key_file, peer_listen, secret_file, peer_database)
    options = {"size": size, "batch": batch, "in_flight": in_flight, "folder": folder}
    return Job(Mixed(watchers), _wanted(session, **_amount(None, duration, 0), **options, **peer))


def _peer(server: str, key_file: Path | None, listen: str, secret_file: str, database: str) -> dict[str, Any]:
    """The second node, as the options name it."""
    from eventd.settings.values import read_endpoint

    try:
        place = read_endpoint(listen) if listen else None
    except ValueError as error:
        raise typer.BadParameter(f"--peer-listen: {error}") from None
    for option, value in (("--peer-key-file", key_file), ("--peer-listen", listen), ("--secret-file", secret_file)):
        if value and not server:
            raise typer.BadParameter(f"{option} is for nodes that run: add --server URL --peer-server URL")
    return {
        "peer_server": server,
        "peer_key_file": key_file,
        "peer_listen": tuple(place) if place else None,
        "secret_file": secret_file,
        "peer_database": database,
    }


def _amount(events: int | None, duration: str, usual: int) -> dict[str, Any]:
    """How many events, or for how long. Raises `BadParameter` for both, and for what is no time."""
    from eventd.text.duration import parse_duration

    if not duration:
        return {"events": events or usual}
    if events is not None:
        raise typer.BadParameter("--events and --duration are two ways to say one thing: leave one out")
    try:
        seconds = parse_duration(duration) / 1_000_000
    except Invalid as error:
        raise typer.BadParameter(f"--duration: {error}") from None
    if not 0 < seconds <= 3600:
        raise typer.BadParameter(f"--duration {duration}: must be more than nothing and at most 1h")
    return {"events": 0, "seconds": seconds}


def _wanted(session: Session, **options: Any) -> Wanted:
    """All that is asked for, with the nodes that the shared options name."""
    from eventd.bench.site import Wanted

    where, second = session.where, options.pop("peer_server", "")
    if second and not where.server:
        raise typer.BadParameter("--peer-server needs --server: the events go from that one to the peer")
    servers = tuple(server for server in (where.server, second) if server)
    for name in ("folder", "database", "peer_database"):
        if servers and (options.get(name) or (name == "database" and where.database)):
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is for nodes of its own, and --server names one that runs")
    options["database"] = _database("--database", where.database or "")
    options["peer_database"] = _database("--peer-database", options.get("peer_database", ""))
    peer_key_file = options.pop("peer_key_file", None)
    key = where.read_key() if servers else ""
    peer_key = replace(where, key="", key_file=peer_key_file).read_key() if peer_key_file is not None else key
    return Wanted(servers=servers, key=key, peer_key=peer_key, **options)


def _database(option: str, url: str) -> str:
    """The URL of a server's database; blank stands for SQLite, in a file of our own. Raises `BadParameter`."""
    from eventd.settings.values import read_database

    if url in ("", "sqlite"):
        return ""
    if url.startswith("sqlite:"):
        raise typer.BadParameter(f"{option}: a file of SQLite is made anew for each run; --folder says where")
    try:
        return read_database(url)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
