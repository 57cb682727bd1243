"""`routerctl console` over real nodes: what it prints, whom it lets in, and what happens when a node is killed."""

from __future__ import annotations

import http.client
import json
import re
import signal
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Control
from tests.support.processes import CONTROL, Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

KEY = "the-key-of-this-test"


class Visit:
    """Requests to a console with the cookie that its link gives."""

    def __init__(self, link: str) -> None:
        self._host, _, path = link.removeprefix("http://").partition("/")
        self._cookie = ""
        self.cookie = self._ask(f"/{path}")[2].partition(";")[0]
        self._cookie = self.cookie

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        return self._ask(path)[:2]

    def _ask(self, path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request("GET", path, headers={"Cookie": self._cookie} if self._cookie else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers.get("Set-Cookie", "")
        finally:
            connection.close()


def state_of(visit: Visit, name: str) -> str:
    """Return the row of a node on the page of all nodes."""
    row = re.search(rf'<tr id="node-{name}".*?</tr>', visit.get("/console/")[1], re.S)
    assert row is not None
    return row[0]


def test_one_node_is_killed_and_the_console_shows_it_while_the_others_go_on(
    processes: Processes, tmp_path: Path
) -> None:
    nodes = [NodeProcess(processes, name, EVENTD_API_KEYS=KEY).process for name in ("one", "two")]
    key = tmp_path / "key"
    key.write_text(KEY)
    folder = tmp_path / "config" / "routerctl"
    folder.mkdir(parents=True)
    file = folder / "contexts.yaml"
    file.touch(0o600)
    contexts = {
        "one": {"server": nodes[0].url, "keyFile": str(key)},
        "two": {"server": nodes[1].url, "keyCommand": ["cat", str(key)]},
        "lame": {"server": nodes[1].url, "keyFile": str(tmp_path / "missing")},
    }
    file.write_text(json.dumps({"contexts": contexts}))  # JSON is YAML
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    console = processes.start("console", [*CONTROL, "console", "--all"], env=env)
    wait_for(lambda: "works once" in console.log(), "the link to be printed")
    link = re.search(r"^http://\S+$", console.log(), re.M)
    assert link is not None
    visit = Visit(link[0])
    wait_for(lambda: ">yes<" in state_of(visit, "two"), "the second node to answer")
    assert "missing: No such file" in state_of(visit, "lame")
    nodes[1].kill9()
    wait_for(lambda: "silent" in state_of(visit, "two"), "the console to show that it was killed")
    assert ">yes<" in state_of(visit, "one")
    assert visit.get("/at/one/console/settings")[0] == 200
    assert visit.get("/at/two/console/settings")[0] == 503
    assert Visit(link[0]).cookie == "", "the link works once"
    assert KEY not in console.log()
    console.send(signal.SIGINT)
    console.wait_exit()


def test_without_a_context_there_is_nothing_to_show(control: Control) -> None:
    told = control("console", code=3)
    assert told.err == "error: no context names a node to show (add one with `routerctl context add`)\n"
    assert "there is no context 'x'" in control("console", "--context", "x", code=3).err


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_port_is_a_number_of_a_port(control: Control, port: str) -> None:
    assert "--port" in control("console", "--port", port, code=2).err
