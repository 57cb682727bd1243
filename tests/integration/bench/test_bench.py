"""Each benchmark from its command line to its result, small; and results that fail verification."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventd.bench.children import free_ports
from eventd.bench.federation import Federation
from eventd.bench.nodes import Node, OwnNode
from eventd.bench.site import Site
from eventd.cli.program.exits import ExitCode
from tests.integration.bench.conftest import Bench, Ended, told


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnNode]]:
    """Two nodes that run, for all tests that are guests."""
    folder = tmp_path_factory.mktemp("nodes")
    ports = free_ports(4)
    nodes = [OwnNode(name, folder, "", (ports.pop(), ports.pop()), "") for name in ("one", "other")]

    async def start() -> None:
        for node in nodes:
            node.launch()
        for node in nodes:
            await node.start()

    try:
        asyncio.run(start())
        yield nodes
    finally:
        for node in nodes:
            node.stop()


@pytest.fixture
def guest(bench: Bench, pair: list[OwnNode], tmp_path: Path) -> Bench:
    """The same on the two nodes, or on the first of them."""
    files = [tmp_path / node.name for node in pair]
    for node, file in zip(pair, files, strict=True):
        file.write_text(node.key)
    one, other = (str(node.client.address) for node in pair)

    def run(what: str, *arguments: str) -> Ended:
        where = ["--server", one, "--key-file", str(files[0])]
        if what in ("federation", "latency", "mixed"):
            where += ["--peer-server", other, "--peer-key-file", str(files[1])]
        return bench(what, *arguments, *where)

    return run


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        (("ingest", "--events", "2000"), 2000),
        (("ingest", "--to", "topic", "--events", "2000", "--durability", "normal", "--in-flight", "2"), 2000),
        (("ingest", "--duration", "300ms", "--batch", "10", "--in-flight", "3"), None),
        (("ingest", "--window", "30", "--events", "2000"), 2000),
        (("ingest", "--window", "7", "--duration", "300ms"), None),
        (("ingest", "--window", "30", "--events", "500", "--requests"), 500),
        (("ingest", "--under-way", "4", "--events", "2000"), 2000),
        (("federation", "--events", "2000"), 2000),
        (("latency", "--events", "10"), 10),
        (("watch", "--watchers", "3", "--events", "5"), 15),
        (("routers", "--routers", "3", "--events", "100"), 300),
        (("mixed", "--duration", "300ms", "--watchers", "2"), None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_nodes_that_run_are_measured_and_left_as_they_were(
    guest: Bench, pair: list[OwnNode], arguments: tuple[str, ...], events: int | None
) -> None:
    result = told(guest(*arguments, "--json"))
    assert result["bench"] == arguments[0]
    assert result["settings"]["servers"][0] == str(pair[0].client.address)
    assert events is None or result["events"] == events
    assert asyncio.run(_left(pair)) == []


async def _left(nodes: list[OwnNode]) -> list[str]:
    """The groups and topics that nodes hold."""
    left = []
    for node in nodes:
        left += [one["group"] for one in (await node.client.call("GET", "/api/v1/status"))["groups"]]
        left += [one["topic"] for one in (await node.client.call("GET", "/v0/topics"))["topics"]]
    return left


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        (("fanout", "--peers", "2", "--dead", "1", "--events", "2000"), 2000),
        (("subscriptions", "--subscriptions", "2", "--events", "20"), 20),
    ],
    ids=["fanout", "subscriptions"],
)
def test_nodes_of_its_own_are_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], events: int
) -> None:
    monkeypatch.setattr("eventd.bench.subscriptions.ONES", 5)
    result = told(bench(*arguments, "-o", "json"))
    assert result["events"] == events
    assert result["settings"]["nodes"] == "own"
    assert result["machine"]["fsync_ms"] > 0


def test_what_the_receiver_has_lost_is_found(
    guest: Bench, pair: list[OwnNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = Federation.verify

    async def lose_and_verify(self: Federation, site: Site) -> list[str]:
        with closing(sqlite3.connect(pair[1].file)) as file:
            (records,) = file.execute("SELECT records FROM blocks ORDER BY position DESC LIMIT 1").fetchone()
            file.execute("DELETE FROM blocks WHERE position = (SELECT max(position) FROM blocks)")
            file.commit()
        lost.append(records)
        return await verify(self, site)

    lost: list[int] = []
    monkeypatch.setattr(Federation, "verify", lose_and_verify)
    ended = guest("federation", "--events", "2000", "--json")
    assert ended.code == ExitCode.CHECK_FAILED
    result = json.loads(ended.out)
    assert result["verified"] is False
    assert result["problems"][0].startswith(f"at the receiver {lost[0]:,} of 2,000 are missing: number ")
    assert ended.err.startswith("error: the measurement was not verified: at the receiver ")
    assert asyncio.run(_left(pair)) == []


def test_results_are_shown_kept_compared_and_drawn(guest: Bench, tmp_path: Path) -> None:
    kept, picture = tmp_path / "kept.jsonl", tmp_path / "kept.svg"
    small = ("ingest", "--to", "topic", "--events", "500", "--durability", "normal")
    first = guest(*small, "--save", str(kept))
    assert first.code == 0
    rows = {line[: line.find("  ")]: line.rpartition("  ")[2] for line in first.out.splitlines()}
    assert rows["verified"] == "yes"
    assert rows["events"] == "500"
    assert {"durability", "in flight", "machine", "events/s", "MB/s", "p50/p95/p99", "client"} <= set(rows)
    assert first.err == (
        "note: durability normal: the last acknowledged records may be lost in a power failure; the default is full\n"
    )
    again = ("--save", str(kept), "--compare", str(kept), "--plot", str(picture), "--json")
    assert told(guest(*small, *again))["compared"]["runs"] == 1
    assert len(kept.read_text().splitlines()) == 2
    assert picture.read_text().count("<circle") == 6
    other = guest("ingest", "--events", "500", "--compare", str(kept), "--json")
    assert told(other)["compared"] is None
    assert "contains no verified ingest with these settings" in other.err


def test_a_secret_that_cannot_be_read_is_told(guest: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.bench.nodes.LISTEN_SECONDS", 0.5)
    place = ("--secret-file", "/nowhere/secret", "--peer-listen", f"127.0.0.1:{free_ports(1)[0]}")
    ended = guest("federation", "--events", "100", *place)
    assert ended.code == ExitCode.ERROR
    assert "does not listen for bench-" in ended.err
    assert "/nowhere/secret" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("ingest", "--events", "0"), 2, "must be at least 1"),
        (("ingest", "--events", "1", "--duration", "1s"), 2, "--events and --duration exclude each other"),
        (("ingest", "--duration", "3"), 2, "a unit is missing"),
        (("ingest", "--duration", "0s"), 2, "must be at least 1ms"),
        (("ingest", "--size", "40"), 1, "has at least"),
        (("ingest", "--window", "2", "--to", "topic"), 2, "leave out --to topic"),
        (("ingest", "--requests"), 2, "needs --window COUNT"),
        (("ingest", "--under-way", "2", "--to", "topic"), 2, "leave out --window and --to topic"),
        (("ingest", "--durability", "normal"), 2, "--durability normal needs --to topic"),
        (("ingest", "--window", "2", "--batch", "8"), 2, "--batch has no effect with --window"),
        (("ingest", "--window", "2", "--in-flight", "4"), 2, "--in-flight has no effect with --window"),
        (("ingest", "--under-way", "2", "--in-flight", "4"), 2, "--in-flight has no effect with --under-way"),
        (("ingest", "--key-file", "x"), 2, "--key-file has no effect without --server URL"),
        (("cache", "--operation", "miss", "--size", "1KiB"), 2, "--size has no effect with --operation miss"),
        (("ingest", "--database", "nonsense"), 2, "is not a database URL"),
        (("ingest", "--database", "sqlite:///x.db"), 2, "choose the disk with --folder"),
        (("ingest", "--folder", "/nowhere"), 1, "no such folder"),
        (("ingest", "--server", "http://127.0.0.1:1"), 1, "cannot reach http://127.0.0.1:1"),
        (("ingest", "--server", "http://127.0.0.1:1", "--folder", "/tmp"), 2, "is for nodes that the command starts"),
        (("ingest", "--data-dir", "x"), 2, "no such option"),
        (("ingest", "--compare", "/nowhere/kept"), 3, "/nowhere/kept: no such file"),
        (("ingest", "--save", "/nowhere/kept"), 1, "cannot be written"),
        (("ingest", "--plot", "x.svg"), 2, "add --save FILE or --compare FILE"),
        (("ingest", "--plot", "x.png", "--save", "x"), 2, "must end in .svg"),
        (("federation", "--server", "http://127.0.0.1:1"), 1, "this measurement needs two nodes"),
        (("federation", "--peer-server", "http://127.0.0.1:1"), 2, "--peer-server needs --server"),
        (("federation", "--secret-file", "x"), 2, "is for running nodes"),
        (("federation", "--database", "postgresql://a/b"), 1, "two nodes need two databases"),
        (
            ("federation", "--database", "postgresql://a/b", "--peer-database", "postgresql://a/b"),
            *(1, "cannot share a database"),
        ),
        (
            ("federation", "--server", "http://a.example:1", "--peer-server", "http://b.example:1"),
            *(1, "--secret-file PATH --peer-listen HOST:PORT"),
        ),
        (("fanout", "--peers", "2", "--dead", "2"), 2, "at least one of the 2 peers must be alive"),
        (("subscriptions", "--server", "http://127.0.0.1:1"), 2, "no such option: --server"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_measured_is_told_in_one_line(
    bench: Bench, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ended = bench(*arguments)
    assert ended.code == code
    assert ended.out == ""
    assert words in ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


def test_a_node_that_does_not_start_is_told_with_what_it_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.bench.nodes._TIED", "import sys; print('no luck today'); sys.exit(7)")
    ended = bench("ingest", "--events", "10")
    assert ended.code == ExitCode.ERROR
    assert ended.err == "error: the node bench-a did not start; it said:\n  no luck today\n"


def test_a_node_that_ends_meanwhile_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    start = OwnNode.start

    async def start_and_stop(self: Node) -> None:
        assert isinstance(self, OwnNode)
        await start(self)
        self.stop()

    monkeypatch.setattr(OwnNode, "start", start_and_stop)
    ended = bench("ingest", "--events", "10")
    assert ended.code == ExitCode.ERROR
    assert ended.err.startswith("error: cannot reach http://127.0.0.1:")


def test_a_duration_in_which_nothing_can_be_sent_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.bench.pouring.LoadRun._row", lambda *_: iter(()))
    ended = bench("ingest", "--duration", "1ms")
    assert ended.code == ExitCode.ERROR
    assert ended.err == "error: nothing was sent before the time was over (give a longer --duration)\n"
