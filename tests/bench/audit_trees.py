"""Measures what trees cost an audit: `python -m tests.bench.audit_trees [options]`.

Two lakes have the same ledgers; in one of them, each event has a leaf in a tree of its node, with checkpoints as nodes
ship them. In each round both are audited in turns, each for the first time and again with the state of that audit. CPU
time is that of the audit and all its processes. That all leaves are proven, and nothing is found, is verified.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from eventd.audit.generate import GeneratorSettings, generate
from eventd.bench.machine import cpu_of
from eventd.lake.history_rows import HistoryKind, write_hashes
from eventd.lake.layout import landing
from eventd.lake.manifest import NodeState, SegmentRange
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment, write_segment, write_state
from federation.history.checkpoints import Checkpoint, LogOrigin, sign_checkpoint
from federation.history.entries import Opening, OpeningReason, event_entry, opening_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteSigner
from federation.history.tiles import TILE_WIDTH, TileAddress, TileBuilder
from tests.bench.audit import process_family
from tests.bench.rounds import run_rounds
from tests.support.ledger_rows import ledger_table

Row = dict[str, Any]
MODES = ("plain", "trees")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_trees")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--events", type=int, default=200_000, help="of each node")
    parser.add_argument("--checkpoints", type=int, default=1440, help="of each tree: one a minute of the day")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[*]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        lakes = {mode: Path(folder) / mode for mode in MODES}
        generate(GeneratorSettings(nodes=options.nodes, events=options.events * options.nodes), str(lakes["plain"]))
        shutil.copytree(lakes["plain"], lakes["trees"])
        TreePlanter(connect(str(lakes["trees"])), options.checkpoints).plant()
        orders = itertools.cycle([MODES, MODES[::-1]])
        run_rounds(vars(options), options.rounds, lambda: _round(lakes, next(orders), options))


def _round(lakes: dict[str, Path], order: tuple[str, ...], options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    for mode in order:
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as out:
            for run in ("first", "again"):
                found |= _audit(lakes[mode], Path(out), f"{mode}_{run}", options)
    for run in ("first", "again"):
        found[f"{run}_ratio"] = found[f"trees_{run}_cpu_s"] / found[f"plain_{run}_cpu_s"]
    return found


def _audit(lake: Path, out: Path, name: str, options: argparse.Namespace) -> dict[str, float]:
    command = [str(Path(sys.executable).with_name("routerctl")), "audit", "run", "--lake", str(lake), "--out", str(out)]
    used: dict[int, float] = {}
    with subprocess.Popen([*command, "--master", options.master, "-o", "json"], stdout=subprocess.DEVNULL) as process:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                used.update({pid: cpu for pid in process_family(process.pid) if (cpu := cpu_of(pid)) is not None})

        watcher = threading.Thread(target=watch)
        watcher.start()
        process.wait()
        ended.set()
        watcher.join()
    report = json.loads((out / "report.json").read_text())
    assert report["findings"] == [], report["findings"][:3]
    sizes = [(tree["size"], tree["proven"]) for tree in report["trees"]]
    assert all(size == proven for size, proven in sizes), sizes
    leaves = 0 if "plain" in name else options.nodes * options.events
    assert sum(size - 1 for size, _ in sizes) == leaves, sizes
    return {f"{name}_cpu_s": sum(used.values()), f"{name}_s": report["work"]["seconds"]}


class TreePlanter:
    """Gives the events of a lake leaves in trees, one of each node and group, and the trees the rows of `history`."""

    def __init__(self, storage: Storage, checkpoints: int) -> None:
        self._storage = storage
        self._checkpoints = checkpoints
        self._survey = survey(storage)
        self._leaves: dict[str, tuple[str, int]] = {}
        """The tree and the leaf of each event, by id."""
        self._own: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)

    def plant(self) -> None:
        """Change the lake."""
        names = (f"{number:016d}" for number in itertools.count())
        trees: defaultdict[tuple[str, str], str] = defaultdict(lambda: next(names))
        segments = sorted(
            (one for one in self._survey.segments if one.place.book is Ledger.EVENTS), key=lambda one: one.after
        )
        for segment in segments:
            table = read_segment(self._storage, segment, ["own", "group", "id", "digest", "position", "recorded_at"])
            for row in table.to_pylist():
                if row["own"]:
                    name = segment.manifest.node, row["group"]
                    self._own[name].append(row)
                    self._leaves[row["id"]] = trees[name], len(self._own[name])
        for segment in segments:
            self._mark(segment)
        for state in self._survey.nodes:
            self._ship(state, {group.group: trees[state.node, group.group] for group in state.groups})

    def _mark(self, segment: Segment) -> None:
        place, manifest = segment
        table = read_segment(self._storage, segment)
        found = [self._leaves[id] for id in table["id"].to_pylist()]
        for at, name in enumerate(("tree", "leaf")):
            field = table.schema.field(name)
            values = pa.array([one[at] for one in found], pa.string() if name == "tree" else field.type)
            table = table.set_column(table.schema.get_field_index(name), field, values.cast(field.type))
        now, payloads = manifest.written_at, manifest.payloads
        write_segment(self._storage, place, table, node=manifest.node, now=now, payloads=payloads, leaves=True)

    def _ship(self, state: NodeState, trees: dict[str, str]) -> None:
        rows = [row for group, tree in trees.items() for row in self._rows(state, LogOrigin(group, state.node, tree))]
        place = landing(Ledger.HISTORY, state.node, state.epoch, 0, state.head, at=state.began_at)
        kept = {"node": state.node, "epoch": state.epoch, "number": state.head}
        table = ledger_table(Ledger.HISTORY, [kept | row for row in rows])
        write_segment(self._storage, place, table, node=state.node, now=state.as_of)
        reach = SegmentRange(after=0, upto=state.head)
        write_state(
            self._storage,
            replace(
                state,
                books=state.books | {Ledger.HISTORY: state.head},
                segments=state.segments | {Ledger.HISTORY: reach},
                groups=tuple(replace(group, tree=trees[group.group]) for group in state.groups),
            ),
        )

    def _rows(self, state: NodeState, origin: LogOrigin) -> Iterator[Row]:
        signer = NoteSigner(str(origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"1" * 32))
        entry = opening_entry(Opening(origin, signer.key, OpeningReason.FIRST, 1, state.began_at), signer)
        common = {"group": origin.group, "tree": origin.tree}
        opened = {"kind": HistoryKind.OPENING, "position": 1, "content": entry[1:].decode()}
        yield common | opened | {"recorded_at": state.began_at}
        own, tiles = self._own[state.node, origin.group], dict[TileAddress, bytes]()
        builder = TileBuilder()
        builder.extend([hash_leaf(entry)])
        step = max(1, len(own) // self._checkpoints)
        for begin in range(0, len(own), step):
            some = own[begin : begin + step]
            tiles |= builder.extend([hash_leaf(event_entry(row["digest"])) for row in some])
            note = sign_checkpoint(Checkpoint(origin, builder.size, builder.root()), signer).encode().decode()
            last = {"position": some[-1]["position"], "recorded_at": some[-1]["recorded_at"]}
            yield common | {"kind": HistoryKind.CHECKPOINT, "size": builder.size, "content": note} | last
        last_ones = {one[:2]: one for one in sorted(tiles)}  # of a tile that grew
        for address in (one for one in last_ones.values() if one.level):
            place = {"level": address.level, "first": address.number * TILE_WIDTH, "recorded_at": state.as_of}
            yield common | {"kind": HistoryKind.HASHES, "content": write_hashes(tiles[address])} | place


if __name__ == "__main__":
    main()
