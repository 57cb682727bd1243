"""The servers of a comparison: a node, a bare QUIC echo, NATS and Redis, all on the first core."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from eventd.bench.children import free_ports
from eventd.tls.making import make_pair
from tests.bench.rivals.servers import Server, program
from tests.support.source import ROOT

CACHE = """
apiVersion: stream.routerd.net/v1alpha1
kind: StreamCache
metadata: {name: bench}
spec: {tenant: bench, namespace: default, name: bench, maxBytes: 128MiB}
"""
CORE = "a"
"""The name of a server that runs on the first core."""


@dataclass(frozen=True, slots=True)
class StreamSite:
    """The running servers; a port of 0: that program is not installed."""

    node: Server
    api: int
    quic: int
    echo: int
    nats: int
    redis: int

    def resident_mib(self) -> float:
        """Return the resident memory of the node, in MiB."""
        text = Path(f"/proc/{self.node.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS:"))

    def make_streams(self, durability: str, *names: str) -> None:
        """Create streams of the tenant `bench`, empty ones."""
        for name in names:
            url = f"http://127.0.0.1:{self.api}/v0/topics/stream:bench:default:{name}"
            for method, body in (("DELETE", b""), ("PUT", json.dumps({"durability": durability}).encode())):
                request = Request(url, body or None, {"Content-Type": "application/json"}, method=method)
                try:
                    urlopen(request, timeout=60).close()
                except OSError:
                    if method == "PUT":
                        raise


@contextmanager
def open_site(folder: Path) -> Iterator[StreamSite]:
    """Start the servers, and stop them afterwards."""
    with ExitStack() as stack:
        api, quic, echo, nats, redis = free_ports(5)
        environ = {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "eventd.cli.routerd_eventd", "serve", "--data-dir", str(folder / "node")]
        listen = ["--api-listen", f"127.0.0.1:{api}", "--quic-listen", f"127.0.0.1:{quic}"]
        node = Server(
            stack, CORE, folder, [*command, *listen], environ={**environ, "EVENTD_CALLBACK_ALLOW": "127.0.0.0/8"}
        )
        node.start(api)
        (folder / "cache.yaml").write_text(CACHE)
        apply = [sys.executable, "-m", "eventd.cli.routerctl", "--server", f"http://127.0.0.1:{api}", "apply", "-f"]
        subprocess.run([*apply, str(folder / "cache.yaml")], check=True, env={**environ}, stdout=subprocess.DEVNULL)
        pair = make_pair(folder / "echo", "echo", ["localhost"], 30, datetime.datetime.now(datetime.UTC))
        echo_command = [sys.executable, "-m", "tests.bench.streams.raw_server", str(echo)]
        echo_command += [str(pair.cert_file), str(pair.key_file)]
        Server(stack, CORE, folder, echo_command, environ=environ).start(echo)
        if found := program("nats-server"):
            Server(stack, CORE, folder, [found, "-a", "127.0.0.1", "-p", str(nats)]).start(nats)
        if store := program("redis-server"):
            options = ["--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            Server(stack, CORE, folder, [store, *options]).start(redis)
        yield StreamSite(node, api, quic, echo, nats if found else 0, redis if store else 0)
