"""The guide from a running Routemaster bus to a node, followed as written, with a stand-in for the old bus."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import shell_files
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.source import ROOT
from tests.support.terminals import make_commands

PAGE = (ROOT / "docs" / "how-to" / "move-from-routemaster.md").read_text()
EXAMPLES = ROOT / "docs" / "examples"
OLD_ROOT = "root-of-the-old-bus"
TOKENS = {"shop": "shop--5d2f", "billing": "billing--77aa"}
UUID = "uuid-of-billing"
BUS_ENV = "ROUTEMASTER_ROOT_KEY=CHANGE-ME\nROUTEMASTER_CLIENTS=shop--5d2f\nFORCE_SSL=YES\nMAX_BACKOFF_MS=1000\n"
RECEIVE = """
echo uuid-of-billing > billing.uuid
TLS_CERT=tls/tls.crt TLS_KEY=tls/tls.key python drain.py billing.uuid > billing.log 2>&1 &
drain=$!
until curl -s --cacert tls/tls.crt https://127.0.0.1:9000/ > answer.txt; do sleep 0.2; done
"""
PUBLISH = """
ask -u shop--5d2f: https://bus.example:8443/topics/orders -d '{"type": "create", "url": "https://shop.example/1"}'
ask -u billing--77aa: https://bus.example:8443/topics/orders -d '{"type": "create", "url": "https://shop.example/2"}'
until grep 'orders create https://shop.example/1' billing.log; do sleep 0.2; done
"""


class OldBus:
    """Answers the lists of a Routemaster bus to its root key."""

    def __init__(self, callback: str) -> None:
        row = {"subscriber": TOKENS["billing"], "uuid": UUID, "callback": callback, "max_events": 50, "timeout": 0}
        internal = {"subscriber": "lost--1", "uuid": "", "callback": "https://10.1.2.3/", "max_events": 1, "timeout": 0}
        queued = {"events": {"sent": None, "queued": 0, "oldest": None}}
        self.lists: dict[str, Any] = {
            "/api_tokens": [{"name": name, "token": token} for name, token in TOKENS.items()]
            + [{"name": "lost", "token": "lost--1"}],
            "/topics": [{"name": "orders", "publisher": TOKENS["shop"], "events": 7}],
            "/subscriptions": [row | {"topics": ["orders"]} | queued, internal | {"topics": ["orders"]} | queued],
        }
        bus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.headers.get("Authorization", "")
                is_root = given == "Basic " + base64.b64encode(f"{OLD_ROOT}:".encode()).decode()
                body = json.dumps(bus.lists[self.path]).encode() if is_root else b""
                self.send_response(200 if is_root else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Keep the test's output to what it says itself."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def ports() -> dict[str, int]:
    return {"9000": free_port(), "8443": free_port(), "8781": free_port()}


@pytest.fixture
def old_bus(ports: dict[str, int]) -> Iterator[OldBus]:
    bus = OldBus(f"https://127.0.0.1:{ports['9000']}/hooks")
    yield bus
    bus.stop()


@pytest.mark.timeout(180)
def test_the_page_moves_a_bus(processes: Processes, old_bus: OldBus, ports: dict[str, int], tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lists, clients, secrets, start, receive, ask, see, clean, copy, claim, check, queued, remove = blocks
    copy = copy.replace("python copy_subscriptions.py", "! python copy_subscriptions.py")  # it reports a refusal
    told = follow(
        processes,
        old_bus,
        ports,
        make_commands(tmp_path / "bin"),
        [
            lists,
            clients,
            secrets,
            start,
            receive,
            ask,
            see,
            clean,
            copy,
            claim,
            RECEIVE,
            PUBLISH,
            check,
            queued,
            remove,
        ],
    )
    tokens, asked, subscriber, copied, claimed, published, checked, drained = (
        told[i] for i in (3, 5, 6, 8, 9, 11, 12, 13)
    )
    assert re.search(r"^shop--[0-9a-f]{12} +shop +active", tokens, re.MULTILINE)
    assert not any(token in "".join(told) for token in TOKENS.values())
    assert re.fullmatch(r"204\n204\n200\ndry_run noop https://bus.example/1 \d+\n", asked)
    assert re.search(r"^dry-run--[0-9a-f]{12} .* dry_run ", subscriber, re.MULTILINE)
    assert "State:          running\n" in subscriber
    assert copied.startswith("billing: orders\nlost: 400 10.1.2.3 is a private address")
    assert claimed == "topic/orders claimed by " + re.findall(r"^(shop--\w+)", tokens, re.MULTILINE)[0] + "\n"
    assert re.fullmatch(r"200\ntopic claimed403\norders create https://shop.example/1 \d+\n", published)
    assert re.search(r"^rm/billing--\w+ +routemaster +\S+ +running", checked, re.MULTILINE)
    assert drained == "0\n"
    left = {path.name for path in processes.directory.iterdir()}
    assert not left & {"clients.env", "api_tokens.json", "old-root.curl", "dry-run.token"}


def follow(processes: Processes, bus: OldBus, ports: dict[str, int], path: str, commands: list[str]) -> list[str]:
    """Type the blocks as one script, in a folder with the files that the page names; return the output of each."""
    folder = processes.directory
    shutil.copy(EXAMPLES / "receivers" / "drain.py", folder)
    shutil.copy(EXAMPLES / "move-from-routemaster" / "copy_subscriptions.py", folder)
    (folder / "old-root.key").write_text(OLD_ROOT + "\n")
    (folder / "bus.env").write_text(BUS_ENV)
    parts = ["trap 'kill -9 $node $drain 2>/dev/null || true' EXIT\n"]
    parts += [f"echo '=== {number}'\n{block}" for number, block in enumerate(commands)]
    replaced = {name: str(port) for name, port in ports.items()}
    replaced["https://old-bus.example"] = f"http://127.0.0.1:{bus.port}"
    text = re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], "".join(parts))
    env = {"PATH": os.pathsep.join([path]), "PORT": replaced["9000"]}
    done = processes.run(["bash", "-e"], env=env, stdin=text, seconds=120, pass_fds=shell_files())
    assert done.returncode == 0, done.stdout + done.stderr
    return re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
