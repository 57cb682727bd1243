"""The record of actions of real nodes: killed at any moment, of several processes, and changed by commands."""

from __future__ import annotations

import getpass
import http.client
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.fresh import create_current
from tests.support.postgres import PostgresServer
from tests.support.processes import CONTROL, Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.waiting import wait_for


class Deployer(threading.Thread):
    """Creates topics and keys at a node while it runs, each request again until it is answered."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(name="deployer")
        self.node = node
        self.codes: list[str] = []
        self._end = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._end.is_set():
            number += 1
            self._until_answered("PUT", f"/v0/topics/t-{number}", {}, f"t-{number}")
            self._until_answered("POST", "/api/v1/keys", {"name": f"k-{number}"}, f"k-{number}")

    def _until_answered(self, method: str, path: str, body: Any, key: str) -> None:
        while not self._end.is_set():
            try:
                self.node.request(method, path, body, {"Idempotency-Key": key})
            except ApiError as error:
                self.codes.append(error.code)
                return
            except (OSError, http.client.HTTPException, AssertionError, ValueError):
                self._end.wait(0.02)  # it is dead, or not yet up
            else:
                self.codes.append("ok")
                return

    def wait_for_answers(self, count: int) -> None:
        """Wait for this many further answers."""
        wanted = len(self.codes) + count
        wait_for(lambda: len(self.codes) >= wanted, f"{count} answers", seconds=40)

    def finish(self) -> None:
        self._end.set()
        self.join(30)
        assert not self.is_alive()


def listed(node: NodeProcess, **query: Any) -> list[dict[str, Any]]:
    """Return all rows of the record, the newest first."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = node.ask("GET", "/actions", limit=200, after=after, **query)
        found += page["actions"]
        if page["next"] is None:
            return found
        after = page["next"]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_no_action_of_a_killed_node_lacks_a_row_and_none_is_done_twice(
    processes: Processes, request: pytest.FixtureRequest, chance: random.Random, kind: str
) -> None:
    url = None
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = create_current(server)
    node = NodeProcess(processes, "a", database_url=url, EVENTD_API_KEYS="operator")
    node.headers = {"Authorization": "Bearer operator"}
    deployer = Deployer(node)
    deployer.start()
    try:
        for _ in range(4):
            deployer.wait_for_answers(4)
            time.sleep(chance.random() * 0.2)  # anywhere in the course of an action
            node.kill9()
            node.start()
        deployer.wait_for_answers(1)
    finally:
        deployer.finish()
    topics = {f"topic {each['topic']}" for each in node.request("GET", "/v0/topics?page_size=1000")["topics"]}
    keys = {f"key {each['name']}" for each in node.ask("GET", "/keys")["keys"]}
    rows = [row["object"] for row in listed(node, result="ok")]
    assert {*rows} == topics | keys
    assert len([row for row in rows if row in keys]) == len(keys)
    assert {*deployer.codes} <= {"ok", "answer_not_kept", "request_in_progress"}, "conflict: done a second time"


def test_the_processes_of_a_node_do_a_repeated_request_once_and_count_refusals_together(processes: Processes) -> None:
    node = NodeProcess(processes, "a", EVENTD_WORKERS="3", EVENTD_API_KEYS="operator")
    node.headers = {"Authorization": "Bearer operator"}
    text = "{apiVersion: net.example/v1, kind: Route, metadata: {name: r}, spec: {}}"
    body = {"sources": [{"name": "a", "text": text}]}

    def apply(_number: int) -> Any:
        return node.request("POST", "/api/v1/resources/apply", body, {"Idempotency-Key": "once"})

    def refused(_number: int) -> int:
        with pytest.raises(ApiError) as told:
            node.request("POST", "/api/v1/keys", {"name": "x"}, {"Authorization": "Bearer stolen"})
        return told.value.status

    with ThreadPoolExecutor(12) as threads:
        answers = [*threads.map(apply, range(12))]
        assert {*threads.map(refused, range(12))} == {401}
    assert [each["changes"][0]["action"] for each in answers] == ["created"] * 12
    assert len(listed(node, operation="resources.apply")) == 1
    assert len(listed(node, result="unauthorized")) == 1
    assert node.stop() == 0
    node.start()  # at their end, the processes stored what they had counted
    assert sum(row["count"] for row in listed(node, result="unauthorized")) == 12


def test_commands_are_recorded_with_the_user_of_the_system(processes: Processes) -> None:
    node = NodeProcess(processes, "a")

    def routerctl(*arguments: str) -> str:
        return processes.run([*CONTROL, *arguments, "--data-dir", str(node.data)]).stdout

    routerctl("key", "create", "running")
    routerctl("topic", "put", "running")
    node.stop()
    routerctl("key", "create", "stopped")
    routerctl("topic", "put", "stopped")
    shown = routerctl("actions", "-o", "wide").splitlines()[1:]
    user = getpass.getuser()
    assert [[part for part in line.split("  ") if part][1].strip() for line in shown] == [f"local {user}"] * 4
    ways = [(("database" in line), ("local socket" in line)) for line in shown]
    assert ways == [(True, False), (True, False), (False, True), (False, True)]
