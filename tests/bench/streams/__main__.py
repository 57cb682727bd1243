"""Compares streams and caches with a bare QUIC echo, NATS and Redis: `python -m tests.bench.streams [--install]`.

Servers run on the first core, the program that measures on the second. Each round measures every contestant in turns,
so that a busy minute of the machine affects all of them; every message and value is read back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import uvloop

from eventd.bench.machine import fsync_ms
from tests.bench.rivals.installing import install, install_for_python
from tests.bench.rivals.servers import on_core
from tests.bench.rounds import machine
from tests.bench.streams import nats_core, own, raw, redis_cache
from tests.bench.streams.load import Rate
from tests.bench.streams.site import StreamSite, open_site
from tests.bench.streams.table import markdown, picture
from tests.bench.streams.ways import WAYS
from tests.bench.streams.ways import measure as measure_way
from tests.support.option_values import names_of

Figures = dict[str, float]
T = TypeVar("T")
PARTS = ("latency", "rate", "bulk", "stalled", "crowd", "cache", "ways")
CONNECTIONS, STREAMS = 4, 8
SIZE, LARGE = 256, 4096


def main() -> None:
    """Measure, print each round, then the medians beside their targets."""
    options = _options()
    if options.install:
        for words in (*install(("nats-server", "redis-server")), *install_for_python(("nats-py", "redis"))):
            print(words, file=sys.stderr)
    print(json.dumps({"settings": {**vars(options), "out": str(options.out), **machine()}}, indent=2))
    rounds = []
    with on_core(1):
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="eventd-streams-") as name, open_site(Path(name)) as site:
                figures = Round(site, options).measure()
                figures |= {"fsync_us": fsync_ms(Path(name)) * 1000, "load": os.getloadavg()[0]}
            rounds.append(figures)
            print(json.dumps({"round": number + 1, **{key: round(value, 2) for key, value in figures.items()}}))
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    text = markdown(medians, rounds)
    print(text)
    if options.out:
        options.out.write_text(text)
        options.out.with_suffix(".svg").write_text(picture(medians))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.streams", description="Measure streams and caches.")
    parser.add_argument("--install", action="store_true", help="install what is missing, with apt-get and pip")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--singles", type=int, default=5000, help="messages that are sent one at a time")
    parser.add_argument("--messages", type=int, default=400_000, help=f"messages of {SIZE} bytes, in batches of 64")
    parser.add_argument("--large", type=int, default=20_000, help=f"messages of {LARGE} bytes, in batches of 64")
    parser.add_argument("--crowd", type=int, default=1000, help="subscribers, of which one in ten does not read")
    parser.add_argument("--gets", type=int, default=40_000, help="pipelined gets of a cache")
    parser.add_argument("--only", type=names_of("part", PARTS), default=PARTS, help=f"of {','.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="a file for the tables; a picture goes beside it, as .svg")
    return parser.parse_args()


class Round:
    """One round over all parts that were chosen."""

    def __init__(self, site: StreamSite, options: argparse.Namespace) -> None:
        self._site = site
        self._options = options
        self._figures: Figures = {}

    def measure(self) -> Figures:
        """Return the figures of the round."""
        for part in self._options.only:
            getattr(self, f"_{part}")()
        return self._figures

    def _latency(self) -> None:
        site, singles = self._site, self._options.singles
        site.make_streams("memory", "lone")
        site.make_streams("fsync", "safe")
        self._figures |= _run(raw.round_trips(site.echo, SIZE, singles)).figures("echo")
        self._figures |= _run(own.latency(site.quic, "default/lone", SIZE, singles, 1)).figures("own")
        if site.nats:
            self._figures |= _run(nats_core.latency(site.nats, SIZE, singles, 1)).figures("nats")
        self._figures |= _run(own.latency(site.quic, "default/safe", SIZE, singles // 2, 1)).figures("own_fsync")
        self._figures |= _run(own.latency(site.quic, "default/lone", SIZE, singles // 2, 10)).figures("own_ten")
        if site.nats:
            self._figures |= _run(nats_core.latency(site.nats, SIZE, singles // 2, 10)).figures("nats_ten")

    def _rate(self) -> None:
        site, messages = self._site, self._options.messages
        self._note("own_rate", self._pour(SIZE, messages))
        if site.nats:
            self._note("nats_rate", _run(nats_core.throughput(site.nats, SIZE, messages, CONNECTIONS)))

    def _pour(self, size: int, count: int, *, streams: int = STREAMS, fanout: int = 1, stalled: int = 0) -> Rate:
        self._site.make_streams("memory", *(f"s{number}" for number in range(streams)))
        cpu = self._site.node.cpu_seconds
        poured = own.throughput(
            self._site.quic, size, count, streams=streams, connections=CONNECTIONS, fanout=fanout, stalled=stalled
        )
        rate = _run(poured)
        self._figures["own_node_us"] = (self._site.node.cpu_seconds - cpu) / count * 1e6
        return rate

    def _bulk(self) -> None:
        large = self._options.large
        rate = self._pour(LARGE, large, streams=1)
        self._figures["own_bulk_mb"] = rate.per_second * LARGE / 1e6
        bare = _run(raw.bulk(self._site.echo, LARGE * 64, max(1, large // 64)))
        self._figures["echo_bulk_mb"] = bare.per_second * LARGE * 64 / 1e6

    def _stalled(self) -> None:
        count = self._options.messages // 10
        alone = self._pour(SIZE, count, streams=1, fanout=10)
        before = self._site.resident_mib()
        beside = self._pour(SIZE, count, streams=1, fanout=10, stalled=1)
        self._figures["own_ten_readers_rate"] = alone.per_second
        self._figures["own_beside_stalled_rate"] = beside.per_second
        self._figures["own_stalled_mib"] = self._site.resident_mib() - before

    def _crowd(self) -> None:
        """Measure a crowd of subscribers, of which none or one in ten does not read."""
        site, crowd = self._site, self._options.crowd
        stalled = crowd // 10
        site.make_streams("memory", "alone", "beside")
        self._figures |= _run(own.crowd(site.quic, "default/alone", crowd - stalled, 0, 100)).figures("crowd")
        beside = own.crowd(site.quic, "default/beside", crowd - stalled, stalled, 100)
        self._figures |= _run(beside).figures("crowd_beside")

    def _cache(self) -> None:
        site, singles, gets = self._site, self._options.singles, self._options.gets
        self._figures |= _run(own.cache_latency(site.quic, "get", SIZE, singles)).figures("own_get")
        self._figures |= _run(own.cache_latency(site.quic, "put", LARGE, singles)).figures("own_put")
        self._note("own_gets", _run(own.cache_pipelined(site.quic, SIZE, gets, 32)))
        self._note("own_gets_wide", _run(own.cache_pipelined(site.quic, SIZE, gets, 32, 8, 4)))
        self._note("echo_frames", _run(raw.pipelined(site.echo, SIZE, gets, 32)))
        if site.redis:
            self._figures |= _run(redis_cache.latency(site.redis, "get", SIZE, singles)).figures("redis_get")
            self._figures |= _run(redis_cache.latency(site.redis, "put", LARGE, singles)).figures("redis_put")
            self._note("redis_gets", _run(redis_cache.pipelined(site.redis, SIZE, gets, 32)))
            self._note("redis_gets_wide", _run(redis_cache.pipelined(site.redis, SIZE, gets, 4, 8)))

    def _ways(self) -> None:
        """Measure each way in and out of a node."""
        site, options = self._site, self._options
        for name in WAYS:
            measured = measure_way(name, site.api, site.quic, SIZE, options.singles // 5, options.messages // 20)
            latencies, rate = _run(measured)
            self._figures |= latencies.figures(f"way_{name}")
            self._note(f"way_{name}", rate)

    def _note(self, name: str, rate: Rate) -> None:
        self._figures |= {f"{name}_per_s": rate.per_second, f"{name}_client_core": rate.cpu}


def _run(work: Coroutine[None, None, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


if __name__ == "__main__":
    main()
