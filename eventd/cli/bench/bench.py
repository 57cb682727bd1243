"""routerctl bench: its commands, one for each measurement."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from eventd.cli.bench.load import Load
from eventd.cli.bench.measurement import Measurement, measurement
from eventd.cli.gateway.options import REMOTE
from eventd.cli.program.values import Duration
from eventd.text.plural import counted

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
ONE_AT_A_TIME = {"batch": 1, "in_flight": 1}


def _number(name: str, most: int, help: str, least: int = 1) -> Any:
    return typer.Option(name, metavar="NUMBER", min=least, max=most, help=help)


@measurement(*REMOTE, "database", load=Load(events=200_000, batch=256, in_flight=4))
def ingest(
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
            help="Emit single events with the Python client, COUNT at a time, instead of batches over"
            " connections (--batch, --in-flight). 0: batches.",
        ),
    ] = 0,
    requests: Annotated[
        bool,
        typer.Option("--requests", help="With --window: send in requests, not over a WebSocket."),
    ] = False,
    under_way: Annotated[
        int,
        typer.Option(
            "--under-way",
            metavar="COUNT",
            min=0,
            max=64,
            help="Send the batches as messages over one WebSocket, COUNT without an answer, instead of over"
            " connections (--in-flight). 0: in requests.",
        ),
    ] = 0,
    durability: DurabilityOption = "full",
) -> Measurement:
    """Measure how many events per second a node accepts over its API, and the latency of a request."""
    from eventd.bench.ingest import Ingest

    if window and to == "topic":
        raise typer.BadParameter("--window emits events to a group: leave out --to topic")
    if under_way and (window or to == "topic"):
        raise typer.BadParameter("--under-way sends batches to a group: leave out --window and --to topic")
    if requests and not window:
        raise typer.BadParameter("--requests chooses how the client sends: it needs --window COUNT")
    if to == "group" and durability != "full":
        raise typer.BadParameter("events of a group are always flushed: --durability normal needs --to topic")
    unused = {}
    if window:
        unused = dict.fromkeys(("batch", "in_flight"), "with --window, which emits single events")
    elif under_way:
        unused = {"in_flight": "with --under-way, which sends over one WebSocket"}
    return Measurement(
        Ingest(to, window=window, websocket=not requests, under_way=under_way), {"durability": durability}, unused
    )


@measurement(*REMOTE, "database", load=Load(events=200_000, batch=256, in_flight=4, peer=True))
def federation() -> Measurement:
    """Measure how many events per second a node receives while it catches up with another one."""
    from eventd.bench.federation import Federation

    return Measurement(Federation())


@measurement(*REMOTE, "database", load=Load(events=500, peer=True))
def latency() -> Measurement:
    """Measure the latency of single events, from the request at one node to a watcher at the other."""
    from eventd.bench.latency import Latency

    return Measurement(Latency(), ONE_AT_A_TIME)


@measurement(load=Load(events=50_000, batch=256, in_flight=4))
def fanout(
    peers: Annotated[int, _number("--peers", 64, "Number of peers.")] = 4,
    dead: Annotated[int, _number("--dead", 63, "How many of the peers do not listen.", 0)] = 2,
) -> Measurement:
    """Measure how fast one node sends events to many peers, some of them dead."""
    from eventd.bench.fanout import Fanout

    if dead >= peers:
        raise typer.BadParameter(f"--dead {dead}: at least one of the {counted(peers, 'peer')} must be alive")
    return Measurement(Fanout(peers, dead))


@measurement(*REMOTE, "database", load=Load(events=100, what="writes"))
def watch(
    watchers: Annotated[int, _number("--watchers", 10_000, "Number of watchers of the topic.")] = 100,
    durability: DurabilityOption = "full",
) -> Measurement:
    """Measure how soon the watchers of a topic receive a record."""
    from eventd.bench.watch import WatchMeasurement

    return Measurement(WatchMeasurement(watchers), {**ONE_AT_A_TIME, "durability": durability})


@measurement(*REMOTE, "database", load=Load(events=5_000, what="records of the source", batch=16, in_flight=1))
def routers(
    routers: Annotated[int, _number("--routers", 1000, "Number of routers from one topic.")] = 10,
    durability: DurabilityOption = "full",
) -> Measurement:
    """Measure how fast routers copy one topic to others, and how soon a watcher receives a copy."""
    from eventd.bench.routers import Routers

    return Measurement(Routers(routers), {"durability": durability})


@measurement("database", load=Load(events=5_000))
def subscriptions(
    subscriptions: Annotated[
        int, _number("--subscriptions", 500, "Number of subscriptions; each gets its part of the events.")
    ] = 10,
) -> Measurement:
    """Measure how soon an event changes the effective configuration, through a plugin."""
    from eventd.bench.subscriptions import Subscriptions

    return Measurement(Subscriptions(subscriptions), {"batch": 256, "in_flight": 1})


@measurement("database", load=Load(events=20_000))
def callbacks(
    callbacks: Annotated[int, _number("--callbacks", 1000, "Number of callbacks; each gets all events.")] = 1,
    dead: Annotated[int, _number("--dead", 999, "How many of the callbacks' endpoints do not listen.", 0)] = 0,
    per_request: Annotated[
        int, _number("--per-request", 10_000, "Maximum number of events in a request; 1: the format `standard`.")
    ] = 100,
) -> Measurement:
    """Measure how fast a node pushes signed events to HTTP endpoints, and how soon a single event arrives."""
    from eventd.bench.callbacks import Callbacks

    if dead >= callbacks:
        raise typer.BadParameter(f"--dead {dead}: at least one of the {counted(callbacks, 'callback')} must be alive")
    return Measurement(Callbacks(callbacks, dead, per_request), {"batch": 256, "in_flight": 1})


@measurement(
    "database",
    load=Load(
        events=5_000,
        what="records",
        batch=1,
        in_flight=1,
        lines="Publishers, each with a connection of its own.",
        unit="a payload",
    ),
)
def stream(
    streams: Annotated[int, _number("--streams", 100, "Number of streams; the publishers are spread over them.")] = 1,
    fanout: Annotated[int, _number("--fanout", 1000, "Subscribers of each stream, with connections of their own.")] = 1,
    window: Annotated[
        int,
        _number("--window", 1000, "Batches that each publisher has under way; without answers, up to their delivery."),
    ] = 1,
    ack: Annotated[
        Literal["batch", "none"],
        typer.Option("--ack", metavar="MODE", help="batch: each batch is answered after its commit; none: no answers."),
    ] = "batch",
    durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync"],
        typer.Option("--durability", metavar="CLASS", help="Durability of the streams; fsync flushes each commit."),
    ] = "fsync",
) -> Measurement:
    """Measure how soon records that are published over QUIC are delivered, and how many per second."""
    from eventd.bench.stream_bench import StreamMeasurement, StreamShape

    shape = StreamShape(streams, fanout, window, answered=ack == "batch", durability=durability)
    return Measurement(StreamMeasurement(shape), {"durability": "full" if durability == "fsync" else durability})


@measurement(
    "database",
    load=Load(events=20_000, what="requests", in_flight=1, lines="Connections to the node.", unit="a value"),
)
def cache(
    operation: Annotated[
        Literal["put", "hit", "miss"],
        typer.Option("--operation", metavar="NAME", help="put: store values; hit: read values; miss: read none."),
    ] = "hit",
    keys: Annotated[int, _number("--keys", 1_000_000, "Number of keys.")] = 1024,
    streams: Annotated[int, _number("--streams", 64, "QUIC streams of each connection.")] = 1,
    window: Annotated[int, _number("--window", 10_000, "Requests under way at a time, over all streams.")] = 1,
) -> Measurement:
    """Measure how fast a cache answers over QUIC."""
    from eventd.bench.cache_bench import CacheMeasurement, CacheShape

    unused = {"size": "with --operation miss, which reads no values"} if operation == "miss" else {}
    if window > keys:
        raise typer.BadParameter(f"--window {window}: a key has one request at a time, so --keys must be as many")
    return Measurement(CacheMeasurement(CacheShape(operation, keys, streams, window)), {"batch": 1}, unused)


@measurement(*REMOTE, "database", load=Load(duration=Duration.read("10s"), batch=256, in_flight=2, peer=True))
def mixed(
    watchers: Annotated[int, _number("--watchers", 10_000, "Number of watchers of a topic.")] = 10,
) -> Measurement:
    """Measure emitting, sending to another node and watching a topic at the same time."""
    from eventd.bench.mixed import Mixed

    return Measurement(Mixed(watchers))
