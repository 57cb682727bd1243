"""Lakes of two real nodes whose receipts are signed, of one with Ed25519 and of the other with HMAC."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from eventd.lake.extra import pyarrow
from eventd.lake.layout import MINUTE
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect
from eventd.lake.writer import write_segment, write_state
from eventd.runtime.clock import SECOND
from federation.event import micros
from tests.support.declared import PLAIN_GROUP, declare, group, peer
from tests.support.shipped import state as state_of
from tests.support.sites import Site
from tests.support.stopped_nodes import ship

Row = dict[str, Any]
SECRET = "the secret of a, of which no report says a word"


def make_lake(folder: Path) -> Path:
    """Have `a` and `b` send each other three batches and ship their ledgers to `folder/lake`; return it.

    `a` signs with the HMAC key `a-1`, `b` with the Ed25519 key `b-1`; their files are in `folder`.
    """
    key = Ed25519PrivateKey.generate()
    (folder / "b-1.key").write_bytes(b64encode(key.private_bytes_raw()))
    (folder / "b-1.pub").write_bytes(b64encode(key.public_key().public_bytes_raw()))
    (folder / "a-1.key").write_text(SECRET)
    for node in asyncio.run(_exchange(folder)):
        ship(node.url, folder / "lake", now=node.clock.now() + MINUTE)
    return folder / "lake"


def end_ledgers(lake: Path, node: str, until: datetime) -> None:
    """Remove what a node recorded from `until` on, as if it had not shipped it yet, and say so in its state."""
    storage, state = connect(str(lake)), state_of(lake, node)
    ends: dict[Ledger, int] = {}
    last: dict[str, int] = {}
    for segment in survey(storage).segments:
        if segment.manifest.node != node:
            continue
        place, time = segment.place, _TIMES[segment.place.book]
        kept = [row for row in read_segment(storage, segment).to_pylist() if row[time] < until]
        ends[place.book] = max([place.after, *(row["number"] for row in kept)])
        if place.book is Ledger.EVENTS:
            last = {name: max(row[name] for row in kept) for name in ("position", "seq")}
        storage.delete([place.data, place.manifest])
        table = pyarrow().Table.from_pylist(kept, arrow_schema(place.book))
        shorter = place._replace(upto=ends[place.book])
        write_segment(storage, shorter, table, node=node, now=segment.manifest.written_at)
    reaches = {book: replace(reach, upto=ends.get(book, reach.upto)) for book, reach in state.segments.items()}
    end = micros(until)
    write_state(
        storage,
        replace(
            state,
            head=last["position"],
            books=state.books | ends,
            segments=reaches,
            groups=tuple(replace(one, last_seq=last["seq"]) for one in state.groups),
            complete_until=end,
            as_of=end + 10 * SECOND,
        ),
    )


_TIMES = {
    Ledger.EVENTS: "recorded_at",
    Ledger.DELIVERIES: "done_at",
    Ledger.RECEIPTS: "acked_at",
    Ledger.INBOUND: "recorded_at",
}
"""The column with the time at which a node recorded a row."""


async def _exchange(folder: Path) -> tuple[Site, Site]:
    nodes = a, b = Site("a", folder), Site("b", folder)
    for node in nodes:
        await node.start()
    try:
        for node, other in ((a, b), (b, a)):
            own = group(node.name, port=node.port, auth={"keys": keys_of(folder, node.name)}, **PLAIN_GROUP)
            await node.apply(own, peer(other.name, other.port))
        for number in range(3):
            for node, other in ((a, b), (b, a)):
                await node.emit(*[f"{node.name}{number}-{each}" for each in range(4)])
                await node.caught_up(other.name)
    finally:
        for node in nodes:
            await node.stop()
        await asyncio.get_running_loop().shutdown_default_executor()
    return nodes


def keys_of(folder: Path, node: str) -> list[Row]:
    """Return the keys of the group as `node` declares them."""
    half = {"secretFile": str(folder / "b-1.key")} if node == "b" else {"publicKeyFile": str(folder / "b-1.pub")}
    return [
        {"id": "a-1", "owner": "a", "secretFile": str(folder / "a-1.key")},
        {"id": "b-1", "owner": "b", "algorithm": "ed25519", **half},
    ]


def write_keys(folder: Path, *ids: str) -> str:
    """Write a file with the keys of these ids, as an auditor has them; return its path."""
    keys = [key for key in keys_of(folder, "auditor") if key["id"] in ids]
    file = folder / f"keys-{'-'.join(ids)}.yaml"
    file.write_text(declare(group("auditor", auth={"keys": keys})))
    return str(file)


def change_rows(lake: Path, book: Ledger, node: str, change: Callable[[Row], Row | None]) -> None:
    """Rewrite the segments of a node's ledger, with their manifests; `change` returns None to drop a row."""
    storage = connect(str(lake))
    for segment in survey(storage).segments:
        if (segment.place.book, segment.manifest.node) == (book, node):
            changed = [change(dict(row)) for row in read_segment(storage, segment).to_pylist()]
            kept = [row for row in changed if row is not None]
            table = pyarrow().Table.from_pylist(kept, arrow_schema(book))
            write_segment(storage, segment.place, table, node=node, now=segment.manifest.written_at)


def copy_of(lake: Path, folder: Path) -> Path:
    """Return a copy of a lake that a test may damage."""
    return Path(shutil.copytree(lake, folder / "lake"))
