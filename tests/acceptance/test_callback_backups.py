"""A database with callbacks that is backed up and restored: what is sent then, and what stays as it was in the copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from eventd.client.webhooks import verify
from federation.webhooks import format_secret
from tests.support.bus import Bus
from tests.support.callback_program import ReceiverThread
from tests.support.certificates import server_context
from tests.support.declared import API_VERSION, group
from tests.support.processes import DAEMON, Processes
from tests.support.waiting import wait_for

SECRET = format_secret(b"k" * 32)


class Copies:
    """Backs up and restores the database of a bus, which is stopped for the second."""

    def __init__(self, processes: Processes, bus: Bus, url: str | None) -> None:
        self._processes = processes
        self._bus = bus
        self._url = url
        self._conninfo = (url or "").replace("+psycopg", "", 1)

    def back_up(self) -> None:
        if self._url is None:
            self._run("db", "backup", "copy.db")
            return
        assert self._bus.node.stop() == 0  # a copy by the server needs a database without sessions
        self._copy(self._name, f"{self._name}_copy")
        self._bus.node.start()

    def restore(self) -> None:
        assert self._bus.node.stop() == 0
        if self._url is None:
            self._run("db", "restore", "copy.db", "--yes")
        else:
            self._copy(f"{self._name}_copy", self._name)
            self._execute(f"{self._name}_copy", "DROP DATABASE {}")
            env = self._processes.node_environment("bus", database_url=self._url)
            done = self._processes.run([*DAEMON, "migrate", "--new-epoch"], env=env)
            assert done.returncode == 0, done.stderr
        self._bus.node.start()

    def _run(self, *arguments: str) -> None:
        done = self._processes.control(*arguments, env=self._processes.node_environment("bus"))
        assert done.returncode == 0, done.stderr

    @property
    def _name(self) -> str:
        return self._conninfo.rpartition("/")[2]

    def _copy(self, source: str, target: str) -> None:
        self._execute(target, "DROP DATABASE IF EXISTS {}")
        self._execute(target, f"CREATE DATABASE {{}} TEMPLATE {source}")

    def _execute(self, name: str, statement: str) -> None:
        with psycopg.connect(self._conninfo, dbname="postgres", autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))  # type: ignore[arg-type]


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[tuple[ReceiverThread, ReceiverThread]]:
    """One of a subscriber, over TLS, and one of a declared callback."""
    context = server_context(tmp_path / "tls")
    made = ReceiverThread(context).start(), ReceiverThread().start()
    yield made
    for one in made:
        one.stop()


def hook(receiver: ReceiverThread) -> dict[str, Any]:
    retry = {"baseBackoff": "20ms", "maxBackoff": "100ms"}
    spec = {"source": {"groupRef": "edge"}, "url": receiver.url, "allowPlain": True, "retry": retry}
    return {"apiVersion": API_VERSION, "kind": "EventCallback", "metadata": {"name": "hook"}, "spec": spec}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_restored_node_sends_what_the_copy_had_not_and_what_comes(
    processes: Processes,
    receivers: tuple[ReceiverThread, ReceiverThread],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    database: str,
) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgres_url")
    app, declared = receivers
    bus = Bus(processes, database_url=url)
    copies = Copies(processes, bus, url)
    key = tmp_path / "app.key"
    key.write_text(SECRET)
    key.chmod(0o600)

    shop, billing = bus.token("shop"), bus.token("billing")
    bus.subscribe(billing, "orders", receiver=app)
    bus.node.ask("POST", "/routemaster/subscribers/billing/keys", {"keys": [f"k={key}"]})
    bus.publish(shop, "orders", "https://x/1")
    wait_for(lambda: bus.subscriber(billing)["events"]["sent"] == 1, "the first event")
    app.answer = lambda _: 503
    bus.publish(shop, "orders", "https://x/2")
    bus.publish(shop, "orders", "https://x/3")
    wait_for(lambda: len(app.calls) >= 3, "attempts")

    bus.node.apply(group("a"), hook(declared))
    declared.refused = {"bad"}
    bus.node.emit("e1", "bad", "e2")
    wait_for(lambda: bus.node.ask("GET", "/callbacks/hook")["deadLetters"] == 1, "the dead letter")
    wait_for(lambda: bus.node.ask("GET", "/callbacks/hook")["waitingEvents"] == 0, "the others")
    bus.node.ask("POST", "/callbacks/hook/pause", {"by": "ann"})
    bus.node.ask("POST", "/callbacks/hook/resend", {"ids": ["e1"]})
    bus.node.emit("e3")

    copies.back_up()

    app.answer = lambda _: 204
    bus.node.ask("POST", "/callbacks/hook/resume", {})
    bus.publish(shop, "orders", "https://x/lost")
    bus.node.emit("lost")
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "everything to be delivered")
    wait_for(lambda: "lost" in declared.first_seen(), "everything to be sent")
    bus.ask("DELETE", "/subscriber", token=billing)
    seen, heard = len(app.calls), len(declared.calls)

    copies.restore()

    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "what the copy had not sent")
    bus.publish(shop, "orders", "https://x/4")
    wait_for(lambda: bus.subscriber(billing)["events"]["sent"] == 4, "what was published since")
    again = app.calls[seen:]
    assert [url for call in again for url in call.events] == ["https://x/2", "https://x/3", "https://x/4"]
    for call in again:
        verify(call.headers, call.body, [SECRET])
    assert bus.ask("POST", "/topics/orders", {"type": "noop", "url": "https://x/5"}, token=billing)[0] == 403
    (topic,) = [one for one in bus.topics(shop) if one["name"] == "orders"]
    assert topic == {"name": "orders", "publisher": shop, "events": 4}

    state = bus.node.ask("GET", "/callbacks/hook")
    assert (state["state"], state["pausedBy"], state["deadLetters"], state["waitingEvents"]) == ("paused", "ann", 1, 1)
    assert declared.calls[heard:] == [], "it was paused in the copy"
    bus.node.ask("POST", "/callbacks/hook/resume", {})
    wait_for(lambda: {call.id for call in declared.calls[heard:]} == {"e1", "e3"}, "the resend and the event")
    repaired = {call.id: call.headers.get("routerd-repair") for call in declared.calls[heard:]}
    assert repaired == {"e1": "1", "e3": None}
    assert bus.node.stop() == 0
