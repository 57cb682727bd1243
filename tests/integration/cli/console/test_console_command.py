"""`routerctl console` over real nodes: what it prints, whom it lets in, and what happens when a node is killed."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Control
from tests.support.console_visit import ConsoleVisit
from tests.support.processes import CONTROL, Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

KEY = "the-key-of-this-test"


def test_one_node_is_killed_and_the_console_shows_it_while_the_others_go_on(
    processes: Processes,
    tmp_path: Path,
    control: Control,
    monkeypatch: pytest.MonkeyPatch,
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
    visit = ConsoleVisit(link[0])
    wait_for(lambda: ">yes<" in visit.row("two"), "the second node to answer")
    assert "missing: No such file" in visit.row("lame")
    nodes[1].kill9()
    wait_for(lambda: "silent" in visit.row("two"), "the console to show that it was killed")
    assert ">yes<" in visit.row("one")
    assert visit.get("/at/one/console/settings")[0] == 200
    assert visit.get("/at/two/console/settings")[0] == 503
    assert ConsoleVisit(link[0]).cookie == "", "the link works once"
    monkeypatch.setenv("XDG_CONFIG_HOME", env["XDG_CONFIG_HOME"])
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    told = control("console", "--link")
    again = ConsoleVisit(told.out.strip())
    assert again.get("/at/one/console/settings")[0] == 200
    assert visit.get("/at/one/console/settings")[0] != 200, "it lets one browser in at a time"
    assert KEY not in console.log()
    console.send(signal.SIGINT)
    console.wait_exit()
    assert "no routerctl console of this user runs here" in control("console", "--link", code=3).err


def test_without_a_context_there_is_nothing_to_show(control: Control) -> None:
    told = control("console", code=3)
    assert told.err == "error: no context names a node to show (add one with `routerctl context add`)\n"
    assert "there is no context 'x'" in control("console", "--context", "x", code=3).err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--all", "--server", "http://127.0.0.1:1"), "--server"),
        (("--all", "--context", "x"), "--context"),
        (("--all", "--key-file", "x"), "--key-file"),
        (("--context", "x", "--key", "k"), "--key"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(control: Control, options: tuple[str, ...], named: str) -> None:
    assert f"{named} has no effect on contexts" in control("console", *options, code=2).err


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_port_is_a_number_of_a_port(control: Control, port: str) -> None:
    assert "--port" in control("console", "--port", port, code=2).err
