"""The example receivers, each as a program that gets signed requests: it handles each callback once, and no other."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest

from eventd.runtime.clock import SECOND, SystemClock
from federation.webhooks import PUBLIC, format_secret, read_key, sign
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.source import ROOT
from tests.support.waiting import wait_for

FOLDER = ROOT / "docs" / "examples" / "receivers"
RECEIVERS = ("receiver_aiohttp.py", "receiver_stdlib.py", "receiver.mjs", "receiver.go")
OLD, NEW, OTHER = (format_secret(bytes([filler]) * 32) for filler in (1, 2, 3))
BODY = '{"type":"client.seen","data":{"näme":"ü"}}'.encode()
MAX_BODY = 4 << 20


Commands = Callable[[str], list[str]]


@pytest.fixture(scope="session")
def command_of(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """Returns what starts a receiver; skips the test where its language is not installed."""

    @cache
    def built(go: str) -> str:
        program = tmp_path_factory.mktemp("go") / "receiver"
        subprocess.run([go, "build", "-o", program, FOLDER / "receiver.go"], check=True, timeout=300)
        return str(program)

    def command(name: str) -> list[str]:
        if name.endswith(".py"):
            return [sys.executable, str(FOLDER / name)]
        language = "go" if name.endswith(".go") else "node"
        if (program := shutil.which(language)) is None:
            pytest.skip(f"{name} needs {language}, which is not installed")
        return [built(program)] if language == "go" else [program, str(FOLDER / name)]

    return command


class Receiver:
    """A receiver at work, and what a sender needs to reach it."""

    def __init__(self, processes: Processes, command: Sequence[str], *texts: str) -> None:
        files = [processes.directory / f"secret{number}" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(f"{text}\n")
        self._port = free_port()
        self.process: Process = processes.start("receiver", [*command, *map(str, files)], env={"PORT": str(self._port)})
        wait_for(self._listens, "the receiver to listen")

    def _listens(self) -> bool:
        assert self.process.running, self.process.log()
        with closing(socket.socket()) as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    def post(self, headers: Mapping[str, str], body: bytes = BODY, path: str = "/hooks") -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)) as connection:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    @property
    def handled(self) -> list[str]:
        """The ids that the receiver printed with the body."""
        return re.findall(rf"^(\S+) {re.escape(BODY.decode())}$", self.process.log(), re.MULTILINE)


def headers(id: str, *secrets: str, skew: int = 0, body: bytes = BODY) -> dict[str, str]:
    """Return the headers of a request that is signed with all of the secrets, `skew` seconds from now."""
    timestamp = SystemClock().now() // SECOND + skew
    signature = sign([read_key(str(number), secret) for number, secret in enumerate(secrets)], id, timestamp, body)
    return {
        "Content-Type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }


@pytest.fixture(params=RECEIVERS)
def start(request: pytest.FixtureRequest, processes: Processes, command_of: Commands) -> Callable[..., Receiver]:
    """Starts one of the receivers with secrets."""
    command = command_of(request.param)
    return lambda *secrets: Receiver(processes, command, *secrets)


def test_callback_is_handled_once_however_often_it_arrives(start: Callable[..., Receiver]) -> None:
    receiver = start(OLD)
    assert receiver.post(headers("m-1", OLD)) == (204, "")
    assert receiver.post(headers("m-1", OLD)) == (204, ""), "sent again with a new time, as after a lost answer"
    captured = headers("m-2", OLD, skew=-200)
    for _ in range(2):
        assert receiver.post(captured) == (204, ""), "the very same request"
    assert receiver.post({name.title(): value for name, value in headers("m-3", OLD).items()})[0] == 204
    wait_for(lambda: len(receiver.handled) >= 3, "the output")
    assert receiver.handled == ["m-1", "m-2", "m-3"]


def test_other_requests_are_refused_and_not_handled(start: Callable[..., Receiver]) -> None:
    receiver = start(OLD)
    good = headers("m-1", OLD)
    signature = good["webhook-signature"]
    refused = {
        "another body": receiver.post(good, BODY + b" "),
        "another id": receiver.post({**good, "webhook-id": "m-2"}),
        "another time": receiver.post({**good, "webhook-timestamp": str(int(good["webhook-timestamp"]) - 1)}),
        "another secret": receiver.post(headers("m-1", OTHER)),
        "another version": receiver.post({**good, "webhook-signature": signature.replace("v1,", "v2,")}),
        "half a signature": receiver.post({**good, "webhook-signature": signature[:-20]}),
        "no signature": receiver.post({**good, "webhook-signature": ""}),
        "no base64": receiver.post({**good, "webhook-signature": "v1,ü v1 v1, ,"}),
        "too late": receiver.post(headers("m-1", OLD, skew=-320)),
        "too early": receiver.post(headers("m-1", OLD, skew=320)),
        "no time": receiver.post({**good, "webhook-timestamp": "soon"}),
        "a dot in the id": receiver.post({**good, "webhook-id": "m.1"}),
        "no headers": receiver.post({}),
    }
    assert {why: status for why, (status, _) in refused.items() if status != 401} == {}
    assert all(text for _, text in refused.values()), "the reason helps the operator of the sender"
    assert not [text for _, text in refused.values() if OLD in text]
    assert receiver.post(good, path="/other")[0] == 404
    assert receiver.post(good)[0] == 204, "what was refused is not remembered"
    wait_for(lambda: receiver.handled, "the output")
    assert receiver.handled == ["m-1"]


def test_larger_body_than_any_callback_has(start: Callable[..., Receiver]) -> None:
    receiver, body = start(OLD), b" " * (MAX_BODY + 1)
    # A receiver may answer and close the connection while the body is being sent.
    with suppress(ConnectionError):
        assert receiver.post(headers("m-1", OLD, body=body), body)[0] == 413
    assert receiver.post(headers("m-1", OLD))[0] == 204, "it was not handled before"
    wait_for(lambda: receiver.handled, "the output")


def test_rotation(start: Callable[..., Receiver]) -> None:
    """The receiver gets the new secret first, so that it knows every secret that the sender signs with meanwhile."""
    receiver = start(OLD, NEW)
    pair = "whsk_" + b64encode(bytes(32)).decode()
    for number, secrets in enumerate([[OLD], [NEW, OLD], [NEW], [OTHER, NEW], [pair, OLD]]):
        assert receiver.post(headers(f"m-{number}", *secrets))[0] == 204
    assert receiver.post(headers("m-9", OTHER))[0] == 401
    wait_for(lambda: len(receiver.handled) >= 5, "the output")
    assert receiver.handled == ["m-0", "m-1", "m-2", "m-3", "m-4"]


@pytest.mark.parametrize("name", RECEIVERS[1:])
def test_secret_that_could_be_guessed_is_refused_at_start(
    processes: Processes, command_of: Commands, tmp_path: Path, name: str
) -> None:
    """An empty file, and a public key that is taken for a secret, would let strangers sign."""
    for text in ("", "whsec_AAAA", PUBLIC + b64encode(bytes(32)).decode()):
        (tmp_path / "secret").write_text(text)
        done = processes.run([*command_of(name), str(tmp_path / "secret")])
        assert done.returncode == 1, text
        assert "a secret must be whsec_ and the base64 of at least 24 bytes" in done.stderr


def test_a_secret_that_cannot_be_used_is_named_at_start(
    processes: Processes, command_of: Commands, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("whsec_geheim")
    for file in ("secret", "missing"):
        done = processes.run([*command_of("receiver_aiohttp.py"), str(tmp_path / file)])
        assert done.returncode == 1
        assert done.stderr.startswith("the secret cannot be used: ")
        assert "geheim" not in done.stderr


@pytest.mark.parametrize("name", [*RECEIVERS, "drain.py"])
def test_without_a_secret_no_receiver_starts(processes: Processes, command_of: Commands, name: str) -> None:
    done = processes.run(command_of(name))
    assert done.returncode == 1
    assert "usage" in done.stderr.lower()


@pytest.mark.parametrize("name", RECEIVERS[1:])
def test_the_same_rules_in_every_language(name: str) -> None:
    """Also where the language is not installed, and the program cannot be run."""
    text = (FOLDER / name).read_text()
    for word in ("webhook-", "id", "timestamp", "signature", '"whsec_"', '"v1,"', "hmac", "sha256", '"."'):
        assert word in text.lower(), word
    assert re.search(r"tolerance\s+?= 300\b", text, re.IGNORECASE)
    assert re.search(r"remembered\s+?= 100_?000\b", text, re.IGNORECASE)
    assert re.search(r"compare_digest\(|timingSafeEqual\(|hmac\.Equal\(", text)
    assert "/hooks" in text
    assert "9000" in text


def test_drain(processes: Processes, command_of: Commands) -> None:
    receiver = Receiver(processes, command_of("drain.py"), "shop--0123", OLD)
    body = b'[{"topic":"orders","type":"create","url":"https://shop.example/1","t":5}]'
    user = {"Authorization": f"Basic {b64encode(b'shop--0123:x').decode()}"}
    assert receiver.post({**headers("m-1", OLD, body=body), **user}, body) == (204, "")
    assert receiver.post(headers("m-1", OLD, body=body), body)[0] == 401
    assert receiver.post({**headers("m-1", OTHER, body=body), **user}, body)[0] == 401
    wait_for(lambda: "orders create https://shop.example/1 5\n" in receiver.process.log(), "the output")
