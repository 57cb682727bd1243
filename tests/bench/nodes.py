"""Two real nodes for a measurement: their databases, their processes, and a check of what they hold at the end."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from eventd.bench.machine import cpu_of
from eventd.ingress.admission import draft_of
from eventd.log.core.eventlog import EventLog
from eventd.log.core.matching_page import read_matching
from eventd.log.core.values import Draft
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.resources.group_configuration import topic_of
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.registry import announce, put_resource
from eventd.store.schema.migrations import upgrade
from eventd.tls.making import Pair
from eventd.witnessing.node_keys import load_history_keys
from federation.event import Event, encode, new_event_id, normalise
from tests.support.ports import free_port
from tests.support.reading import AnyRecord

GROUP = "bench"
API = "federation.routerd.net/v1alpha1"


def make_drafts(node: str, count: int, size: int, *, start: int = 0) -> list[Draft]:
    """Return events of one node, each `size` bytes in canonical form, with time-ordered ids."""
    clock = SystemClock()
    drafts = []
    padding = 0
    for number in range(start, start + count):
        event = Event(
            id=new_event_id(clock.now() + number, os.urandom(10)),
            group=GROUP,
            source_node=node,
            type="routerd.client.ipv4.observed",
            subject=f"10.88.{number // 250 % 250}.{number % 250}/32",
            payload={"number": f"{number:010d}", "pad": "x" * padding},
        )
        body = encode(normalise(event, now=clock.now()))
        if not padding and len(body) < size:
            padding = size - len(body)
        drafts.append(draft_of(normalise(event, now=clock.now()), body.decode(), ""))
    return drafts


class BenchNode:
    """One node: a database that can be filled while it is down, and a process."""

    def __init__(self, name: str, directory: Path, url: str | None) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.url = url or f"sqlite:///{self.directory / 'eventd.db'}"
        self.port = free_port()
        self.api = free_port()
        self.history = "record"
        """The `history.mode` of the group."""
        self.tls: Pair | None = None
        """The certificate with which the node serves and shows itself; None: plain HTTP."""
        self._process: subprocess.Popen[bytes] | None = None

    def declare(
        self, secret: Path, peers: Sequence[BenchNode], keys: Sequence[dict[str, str]] = (), **of_peers: object
    ) -> None:
        """Migrate, and apply the group and the peers; `keys` are further keys of the group.

        `of_peers` holds further fields of their spec.
        """
        database = Database(self.url)
        now = SystemClock().now()
        spec = {
            "nodeName": self.name,
            "auth": {"mode": "hmac", "secretFile": str(secret)} | ({"keys": list(keys)} if keys else {}),
            "listen": {"address": "127.0.0.1", "port": self.port, "tls": self._files()},
            "history": {"mode": self.history},
        }
        try:
            database.write_now(upgrade, now=now)
            with database.transaction() as conn:
                common = {"api_version": API, "annotations": {}, "now": now}
                put_resource(conn, kind="EventGroup", name=GROUP, spec=spec, **common)
                for peer in peers:
                    of_peer = {"groupRef": GROUP, "nodeName": peer.name, "endpoint": peer.endpoint, **of_peers}
                    if peer.tls is not None:
                        of_peer["tls"] = {"pins": [peer.tls.certificate.pin], **self._files()}
                    put_resource(conn, kind="EventPeer", name=peer.name, spec=of_peer, **common)
                announce(conn)
        finally:
            database.close()

    @property
    def endpoint(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def _files(self) -> dict[str, str]:
        return {} if self.tls is None else {"certFile": str(self.tls.cert_file), "keyFile": str(self.tls.key_file)}

    async def fill(self, drafts: Sequence[Draft]) -> None:
        """Write events into the database while the node is down."""
        database = Database(self.url)
        log = await EventLog.open(database, SystemClock())
        topic = await log.topic(topic_of(GROUP))
        if self.history == "record":  # without a tree, the events would have no leaves
            keys = load_history_keys(self.directory, SYSTEM)
            await database.write(open_tree, topic, TreeOwner(GROUP, self.name, keys.log), log.clock.now())
        for start in range(0, len(drafts), 1000):
            await log.append(topic, drafts[start : start + 1000])
        await log.close()
        database.close()

    def start(self, **settings: str) -> None:
        """Start the process with further variables; return when it is ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENTD_")}
        environment |= {
            "EVENTD_DATA_DIR": str(self.directory),
            "EVENTD_DATABASE_URL": self.url,
            "EVENTD_API_LISTEN": f"127.0.0.1:{self.api}",
            **settings,
        }
        with (self.directory / "node.log").open("ab") as log:
            command = [sys.executable, "-m", "eventd.cli.routerd_eventd", "serve"]
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while self.stored() < 0:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start: {(self.directory / 'node.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stored(self) -> int:
        """Return the number of durable events of the group; -1 while the node does not answer."""
        try:
            with urllib.request.urlopen(f"{self.endpoint}/v1/status", timeout=5, context=self._context()) as answer:
                return int(json.load(answer)["storedEvents"])
        except (OSError, urllib.error.URLError):
            return -1

    def _context(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=str(self.tls.cert_file))
        context.check_hostname = False  # the certificate names the node alone, and is the only one trusted
        return context

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process so far."""
        assert self._process is not None
        return cpu_of(self._process.pid) or 0.0

    def resident_mib(self) -> float:
        """Return the peak resident memory of the process."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def stop(self) -> None:
        """Stop the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def read(self, source: str) -> Iterator[tuple[str, str]]:
        """Yield every stored event of a source, id and canonical form, in the order of this log."""
        database = Database(self.url)
        try:
            after = 0
            while True:
                page = database.read_now(
                    read_matching, 1, after, AnyRecord(), limit=5000, max_bytes=1 << 26, until=None
                )
                yield from ((record.event_id, record.body) for record in page.items if record.node == source)
                if not page.full:
                    return
                after = page.upto
        finally:
            database.close()


def verify(sender: BenchNode, receiver: BenchNode, count: int) -> None:
    """Raise unless the receiver holds exactly the sender's own events, once, in its order."""
    sent, received = list(sender.read(sender.name)), list(receiver.read(sender.name))
    if len(sent) != count or sent != received:
        raise RuntimeError(f"not what was sent: {len(sent)} sent, {len(received)} received, {count} expected")
