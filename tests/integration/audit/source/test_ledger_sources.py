"""Ledgers of running nodes as Spark reads them: from their databases and over their API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.source import nodes
from eventd.audit.source.options import read_options
from eventd.audit.source.origin import RowsGone
from eventd.audit.source.readers import LedgerReader, LedgerStream
from eventd.audit.source.spark_columns import spark_schema
from eventd.errors import NotFound, SecretUnreadable, Unauthorized, Unavailable
from eventd.lake.schema import Ledger
from eventd.log.core.head import renew_epoch
from eventd.runtime.backoff import Backoff
from tests.integration.conftest import MakeSites
from tests.support.ports import free_port
from tests.support.sites import Site

Given = Callable[..., dict[str, str]]
EVENTS = spark_schema(Ledger.EVENTS)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "url"])
def way(request: pytest.FixtureRequest) -> str:
    """How the nodes are read: from either database, or over their API."""
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, way: str) -> str:
    """The database of site-a."""
    return str(request.getfixturevalue(f"migrated_{'postgres' if way == 'postgres' else 'sqlite'}_url"))


@pytest.fixture
async def pair(url: str, sites: MakeSites) -> tuple[Site, Site]:
    """site-a and site-b, which send to each other."""
    a, b = sites("site-a", "site-b", urls=[url, ""])
    await a.start()
    await b.start()
    await a.join(b)
    await b.join(a)
    return a, b


@pytest.fixture
def given(way: str, pair: tuple[Site, Site]) -> Given:
    """The options that name both nodes."""
    if way == "url":
        addresses = [site.running.api_address for site in pair]
        places = {"url": ",".join(f"http://{host}:{port}" for host, port in filter(None, addresses))}
    else:
        places = {"database": ",".join(site.url for site in pair)}
    return lambda **more: places | more


async def read(options: dict[str, str]) -> list[dict[str, Any]]:
    """All rows."""

    def work() -> list[dict[str, Any]]:
        reader = LedgerReader(read_options(options), spark_schema(read_options(options).book))
        return [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]

    return await asyncio.to_thread(work)  # the nodes run on this loop


async def follow(options: dict[str, str], start: dict[str, int]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """One batch of a stream: where it ends, and its rows."""

    def work() -> tuple[dict[str, int], list[dict[str, Any]]]:
        stream = LedgerStream(read_options(options), spark_schema(read_options(options).book))
        try:
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            pieces = stream.partitions(start, end)
            return end, [row for piece in pieces for batch in stream.read(piece) for row in batch.to_pylist()]
        finally:
            stream.stop()

    return await asyncio.to_thread(work)  # the nodes run on this loop


async def test_both_nodes_tell_of_what_went_from_one_to_the_other(pair: tuple[Site, Site], given: Given) -> None:
    a, _ = pair
    await a.emit(*(f"e{number}" for number in range(50)), payload={"port": "ge-0/0/7"})
    await a.caught_up("site-b")
    events = await read(given(rowsPerPartition="20"))
    assert sorted((row["node"], row["id"], row["own"]) for row in events) == sorted(
        (node, f"e{number}", node == "site-a") for node in ("site-a", "site-b") for number in range(50)
    )
    assert {row["payload"] for row in events} == {None}, "payloads are read only on request"
    full = await read(given(node="site-a", payloads="true"))
    assert [row["payload"] for row in full] == ['{"port":"ge-0/0/7"}'] * 50
    delivered = await read(given(book="deliveries", node="site-a"))
    assert [(row["id"], row["outcome"]) for row in delivered] == [(f"e{number}", "delivered") for number in range(50)]
    sent = {row["receipt_digest"] for row in await read(given(book="receipts"))}
    assert sent == {row["receipt_digest"] for row in await read(given(book="inbound", node="site-b"))}
    assert await read(given(book="gaps")) == []


async def test_a_stream_goes_on_where_it_was(pair: tuple[Site, Site], given: Given) -> None:
    a, _ = pair
    await a.emit(*(f"e{number}" for number in range(10)))
    options, offset, ids = given(node="site-a", maxRowsPerBatch="4"), {}, []
    for _ in range(3):
        offset, rows = await follow(options, offset)
        ids.append([row["id"] for row in rows])
    assert list(map(len, ids)) == [4, 4, 2]
    await a.emit("late")
    offset, rows = await follow(options, offset)
    assert [*chain.from_iterable(ids), *(row["id"] for row in rows)] == [
        *(f"e{number}" for number in range(10)),
        "late",
    ]
    assert await follow(options, offset) == (offset, [])


async def test_a_node_is_read_with_a_key_and_not_without(sites: MakeSites, tmp_path: Path) -> None:
    (a,) = sites("site-a")
    await a.start(api_keys="reader-of-all-groups:r")
    await a.join()
    await a.emit("e")
    assert a.running.api_address is not None
    url = "http://{}:{}".format(*a.running.api_address)
    with pytest.raises(Unauthorized, match="refuses") as refused:
        await read({"url": url})
    assert "reader-of-all-groups" not in str(refused.value)
    key = tmp_path / "key"
    key.write_text("reader-of-all-groups\n")
    assert [row["id"] for row in await read({"url": url, "keyFile": str(key)})] == ["e"]
    with pytest.raises(SecretUnreadable, match="keyFile"):
        await read({"url": url, "keyFile": str(tmp_path / "none")})


async def test_a_node_that_is_away_is_told_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_WAIT", Backoff(base=0.001, cap=0.001))
    port = free_port()
    with pytest.raises(Unavailable, match=f"cannot reach http://127.0.0.1:{port}"):
        await asyncio.to_thread(LedgerReader(read_options({"url": f"http://127.0.0.1:{port}"}), EVENTS).partitions)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_epoch_that_changed_under_a_plan_is_told(pair: tuple[Site, Site], given: Given) -> None:
    a, _ = pair
    await a.emit("e")
    reader = LedgerReader(read_options(given(node="site-a")), EVENTS)
    (piece,) = await asyncio.to_thread(reader.partitions)
    await a.running.log.database.write(renew_epoch)
    with pytest.raises(RowsGone, match=r"has begun (another|a new) epoch"):
        await asyncio.to_thread(list, reader.read(piece))


async def test_a_log_that_began_anew_ends_the_stream_of_the_old_one(sites: MakeSites) -> None:
    (a,) = sites("site-a")
    options = {"database": a.url}
    await a.start()
    await a.join()
    await a.emit("one")
    offset, _ = await follow(options, {})
    await a.stop()
    a.lose_database()
    await a.start()
    await a.join()
    await a.emit("two")
    with pytest.raises(RowsGone, match="the node has begun a new epoch"):
        await follow(options, offset)
    _, rows = await follow({**options, "onGap": "skip"}, offset)
    assert [row["id"] for row in rows] == ["two"]


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no database at"):
        LedgerReader(read_options({"database": str(tmp_path / "none.db")}), EVENTS).partitions()
    assert not list(tmp_path.iterdir())
    with pytest.raises(SecretUnreadable, match="databaseFile"):
        LedgerReader(read_options({"databaseFile": str(tmp_path / "none")}), EVENTS).partitions()
