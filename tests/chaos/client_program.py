"""A client of one node, run as a program: it reports each question and each answer on its output before it goes on to
the next. So what a node has acknowledged is known whatever happens to the node or to this program.

It imports the standard library only. Lines on its input are `begin NAME` for a round, `halt`, which is answered with
`{"kind": "halted"}` as soon as no question is open, and then `follow SEQ`, which is answered so when the watch has come
to that seq, or gives up.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

SECONDS = 12.0
"""How long the client waits for an answer."""
TYPES = ("t.even", "t.odd")
WORK = "t.work"
LEASE_MILLISECONDS = 1500
_SECONDS_TO_FOLLOW = 30.0


class NoAnswer(Exception):
    """The node did not answer, or with an error."""


class Refused(NoAnswer):
    """The node answered with an error."""


class MessageSocket:
    """The client's end of a WebSocket whose messages are JSON. Its methods raise OSError, also when it has ended."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._file = self._socket.makefile("rb")
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: Y2hhb3MgcHVibGlzaGVyIQ==\r\n\r\n"
        self._socket.sendall(head.encode())
        status = self._file.readline()
        while self._file.readline().strip():
            pass
        if b" 101 " not in status:
            self.close()
            raise NoAnswer(status.decode(errors="replace"))

    def send(self, message: Any) -> None:
        """Send a message as text, with a mask of zeros."""
        text = json.dumps(message).encode()
        self._socket.sendall(b"\x81\xff" + len(text).to_bytes(8, "big") + bytes(4) + text)

    def receive(self) -> dict[str, Any]:
        """Return the next message; pings are answered."""
        while True:
            kind, size = self._take(2)
            if size >= 126:
                size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
            text = self._take(size)
            match kind & 0x0F:
                case 1:
                    return dict(json.loads(text))
                case 8:
                    raise ConnectionError("the node closed the connection")
                case 9:
                    self._socket.sendall(bytes([0x8A, 0x80 | size]) + bytes(4) + text)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def _take(self, size: int) -> bytes:
        taken = self._file.read(size)
        if len(taken) < size:
            raise ConnectionError("the connection ended")
        return taken


class Client:
    """Asks whichever process of the node answers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.name: str = settings["name"]
        self.pause: float = settings["pause"]
        self.seed: str = settings["seed"]
        self.loads: list[str] = settings["loads"]
        self.round = ""
        self.running = threading.Event()
        self.ended = threading.Event()
        self._files = [Path(file) for file in settings["ports"]]
        self._at = 0
        self._output = threading.Lock()
        self._numbers = iter(range(1 << 62))

    def tell(self, kind: str, **members: Any) -> None:
        """Write one line to the output; returns when the reader can read it."""
        line = json.dumps({"kind": kind, "at": time.monotonic(), **members}).encode() + b"\n"
        with self._output:
            while line:
                line = line[os.write(1, line) :]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer. Raises NoAnswer."""
        try:
            with contextlib.closing(self.connect()) as connection:
                sent = None if body is None else json.dumps(body)
                connection.request(method, path, sent, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                told = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._at += 1
            raise NoAnswer(repr(error)) from None
        if answer.status >= 400:
            if answer.status == 503:  # it stands by
                self._at += 1
            raise Refused(f"{answer.status} {json.dumps(told)[:300]}")
        return told

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection to the process that answered last, or to the next one."""
        return http.client.HTTPConnection("127.0.0.1", self._port(), timeout=SECONDS)

    def _port(self) -> int:
        return int(self._files[self._at % len(self._files)].read_text().rpartition(":")[2])

    def open_publisher(self) -> MessageSocket:
        """Return a WebSocket to publish over. Raises OSError, and NoAnswer if the node opens none."""
        return MessageSocket(self._port(), "/api/v1/groups/edge/publish")

    def reported(self, kind: str, method: str, path: str, body: Any, **about: Any) -> Any:
        """Ask, with a line before and after; return the answer, or None without one."""
        number = next(self._numbers)
        self.tell(kind, number=number, **about)
        try:
            told = self.ask(method, path, body)
        except NoAnswer as error:
            self.tell("failed", number=number, why=str(error), refused=isinstance(error, Refused))
            return None
        self.tell("answered", number=number, answer=told)
        return told


class Emits:
    """New ids in units of 1 to 10, repeats, refreshes, short lifetimes; without an answer it retries, or gives up."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._chance = Random(f"{client.seed} emits")
        self._types: dict[str, str] = {}
        self._number = 0
        self._round = ""

    def step(self) -> float:
        """Emit one unit; return the seconds until the next."""
        client, chance = self._client, self._chance
        if self._round != client.round:
            self._round, self._number, self._types = client.round, 0, {}
        ids, kind, ttl = self._unit()
        events = [{"id": each, "type": kind, **({"ttl": ttl} if ttl else {})} for each in ids]
        for _ in range(1 + chance.randint(0, 2)):
            about = {"ids": ids, "type": kind, "ttl": ttl}
            if client.reported("emit", "POST", "/api/v1/groups/edge/events", {"events": events}, **about) is not None:
                break
            if not client.running.is_set():
                break
            time.sleep(0.05)
        return client.pause * (0.4 + 1.2 * chance.random())

    def _unit(self) -> tuple[list[str], str, str]:
        client, chance = self._client, self._chance
        name = f"{client.name}-{client.round}"
        if self._number and chance.random() < 0.1:
            known = f"{name}-{chance.randrange(self._number):06}"
            if self._types[known] != WORK:
                return [known], self._types[known], chance.choice(("1440h", ""))
        kind = WORK if "derive" in client.loads and chance.random() < 0.15 else chance.choice(TYPES)
        count = 1 if kind == WORK else chance.randint(1, 10)
        ids = [f"{name}-{self._number + at:06}" for at in range(count)]
        self._number += count
        ttl = "" if kind == WORK else chance.choices(("", "720h", "300ms"), (60, 35, 5))[0]
        self._types |= dict.fromkeys(ids, kind)
        return ids, kind, ttl


class Publishes:
    """New ids in messages over a WebSocket, in no order; what is not answered is sent again over the next, or given
    up."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._chance = Random(f"{client.seed} publishes")
        self._number = 0

    def step(self) -> float:
        """Send some messages; return the seconds until the next ones."""
        client, chance = self._client, self._chance
        left = [self._ids() for _ in range(chance.randint(1, 6))]
        for _ in range(1 + chance.randint(0, 2)):
            try:
                with contextlib.closing(client.open_publisher()) as opened:
                    left = self._converse(opened, left)
            except (OSError, NoAnswer):
                client._at += 1
            if not left or not client.running.is_set():
                break
            time.sleep(0.05)
        return client.pause * (0.4 + 1.2 * chance.random())

    def _ids(self) -> list[str]:
        name = f"{self._client.name}-{self._client.round}-p"
        count = self._chance.choice((1, 1, 5, 80))
        self._number += count
        numbers = range(self._number - count, self._number)
        return [f"{name}-{self._chance.getrandbits(32):08x}-{number:06}" for number in numbers]

    def _converse(self, opened: MessageSocket, messages: list[list[str]]) -> list[list[str]]:
        """Send the messages over one connection; return those that were not answered."""
        client, waiting = self._client, list[tuple[int, list[str]]]()
        why = "the connection ended"
        try:
            for seq, ids in enumerate(messages, 1):
                number = next(client._numbers)
                client.tell("emit", number=number, ids=ids, type=TYPES[0], ttl="")
                waiting.append((number, ids))
                events = [{"id": each, "type": TYPES[0]} for each in ids]
                opened.send({"seq": seq, "events": events})
            while waiting:
                for answer in opened.receive().get("answers", ()):
                    number, _ = waiting.pop(0)
                    if "error" in answer:
                        client.tell("failed", number=number, why=json.dumps(answer["error"])[:300], refused=True)
                    else:
                        client.tell("answered", number=number, answer=answer)
        except (OSError, ValueError) as error:
            why = repr(error)
        for number, _ in waiting:
            client.tell("failed", number=number, why=why, refused=False)
        return [ids for _, ids in waiting]


class Writes:
    """Batches for a topic, each under a key; one without an answer is written again until it is answered."""

    def __init__(self, client: Client, topic: str, kind: str) -> None:
        self._client = client
        self._chance = Random(f"{client.seed} {topic}")
        self._topic = topic
        self._kind = kind
        self._count = 0
        self._open: tuple[str, list[dict[str, Any]]] | None = None

    def step(self) -> float:
        """Write one batch, or the unanswered one again; return the seconds until the next."""
        if self._open is None:
            key = f"{self._client.name}-{self._topic}-{self._count}"
            self._count += 1
            size = self._chance.randint(1, 8)
            tags = ("loud", "low")
            self._open = key, [{"data": f"{key}.{at}", "tag": self._chance.choice(tags)} for at in range(size)]
        key, records = self._open
        about = {"topic": self._topic, "key": key, "records": [[each["data"], each["tag"]] for each in records]}
        path, body = f"/v0/topics/{self._topic}", {"records": records, "idempotency_key": key}
        if self._client.reported(self._kind, "POST", path, body, **about) is None:
            return 0.1
        self._open = None
        return self._client.pause * (0.4 + 1.2 * self._chance.random())


class Jobs:
    """Claims jobs, and acks or returns them, sometimes too late."""

    def __init__(self, client: Client, worker: str) -> None:
        self._client = client
        self._worker = worker
        self._chance = Random(f"{client.seed} {worker}")

    def step(self) -> float:
        """Claim some jobs and settle them; return the seconds until the next claim."""
        client, chance = self._client, self._chance
        body = {"node": self._worker, "max": chance.randint(1, 3), "lease_ms": LEASE_MILLISECONDS}
        claimed = client.reported("claim", "POST", "/v0/topics/jobs/claim", body, worker=self._worker)
        if claimed and claimed["claimed"]:
            time.sleep(chance.choice((0, 0, 0.05, 0.3, LEASE_MILLISECONDS / 1000 + 0.1)))
            held = [(job["$seq"], job["lease_id"]) for job in claimed["claimed"]]
            deed = chance.choices(("ack", "nack"), (5, 1))[0]
            named = {"node": self._worker, "seqs": [seq for seq, _ in held], "lease_ids": [lease for _, lease in held]}
            client.reported(deed, "POST", f"/v0/topics/jobs/{deed}", named, held=held)
        return client.pause * (0.4 + 1.2 * chance.random())


class Watch:
    """Follows the topic `orders` as server-sent events, and continues after a cut with the last event id, or, once the
    session is gone, with a new session from the last seq."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stream = ""
        self._last = ""
        self._goal = 0
        self._seq = 0
        self._until = 0.0

    def catch_up(self, seq: int) -> None:
        """Follow up to this seq, while no round runs."""
        self._goal, self._until = seq, time.monotonic() + _SECONDS_TO_FOLLOW
        while self._seq < seq and time.monotonic() < self._until:
            time.sleep(self.step())
        self._goal = 0

    def _continues(self) -> bool:
        return self._client.running.is_set() or (self._seq < self._goal and time.monotonic() < self._until)

    def step(self) -> float:
        """Follow until the stream ends; return the seconds until the next attempt."""
        try:
            if not self._stream:
                asked = {"topics": {"orders": {"from_seq": self._seq}}}
                self._stream = self._client.ask("POST", "/v0/watch", asked)["stream_url"]
                self._last = ""
                self._client.tell("watch began", seq=self._seq)
            with contextlib.closing(self._client.connect()) as connection:
                self._follow(connection)
        except (NoAnswer, OSError, http.client.HTTPException, ValueError):
            self._client._at += 1
        return 0.1

    def _follow(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", self._stream, headers={"Last-Event-ID": self._last} if self._last else {})
        answer = connection.getresponse()
        if answer.status != 200:
            self._stream = ""
            raise NoAnswer(str(answer.status))
        kind, told, last = "", "", ""
        connection.sock.settimeout(1.0)
        while self._continues():
            try:
                line = answer.readline()
            except TimeoutError:
                return
            if not line:
                return
            name, _, value = line.decode().rstrip("\n").partition(": ")
            match name:
                case "event":
                    kind = value
                case "data":
                    told = value
                case "id":
                    last = value
                case "" if kind:
                    self._take(kind, json.loads(told))
                    self._last, kind, told = last or self._last, "", ""

    def _take(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "record":
            records = [[each["$seq"], each["data"]] for each in told["records"]]
            self._client.tell("seen", records=records)
            self._seq = told["to_seq"]
        elif kind == "tombstone":
            self._client.tell("tombstone", reason=told["reason"], gap=[told["gap_from"], told["gap_to"]])
            if told["reason"] == "recreated":
                self._seq = 0


def loads_of(client: Client, watch: Watch) -> list[Callable[[], float]]:
    """Return the steps of all that the client does, each for a thread."""
    steps = [Emits(client).step]
    if "topics" in client.loads or "watch" in client.loads:
        steps += [Writes(client, "orders", "write").step]
    if "topics" in client.loads:
        steps += [Writes(client, "notes", "write").step]
    if "queue" in client.loads:
        steps += [Writes(client, "jobs", "write").step, Jobs(client, "w1").step, Jobs(client, "w2").step]
    if "watch" in client.loads:
        steps += [watch.step]
    if "publish" in client.loads:
        steps += [Publishes(client).step]
    return steps


def repeat(client: Client, step: Callable[[], float], idle: threading.Semaphore) -> None:
    """Take steps while a round runs; `idle` counts the threads that wait for the next one."""
    while True:
        idle.release()
        client.running.wait()
        if client.ended.is_set():
            return
        idle.acquire()
        while client.running.is_set():
            pause = step()
            end = time.monotonic() + pause
            while client.running.is_set() and time.monotonic() < end:
                time.sleep(min(0.05, pause))


def main() -> None:
    """Run until the input ends."""
    client = Client(json.loads(sys.argv[1]))
    watch = Watch(client)
    steps, idle = loads_of(client, watch), threading.Semaphore(0)
    for step in steps:
        threading.Thread(target=repeat, args=(client, step, idle), daemon=True).start()
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "begin":
            client.round = name
            client.running.set()
        elif word == "follow":
            watch.catch_up(int(name))
            client.tell("halted")
        else:
            client.running.clear()
            for _ in steps:
                idle.acquire()
            for _ in steps:
                idle.release()
            client.tell("halted")
    os._exit(0)


if __name__ == "__main__":
    main()
