"""The README and the pages work as written: the five-minute guide runs, and every command and link exists."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from eventd.cli import routerd_eventd_commands
from eventd.resources.reading.documents import load_text
from eventd.resources.validation.check import check_draft
from tests.support.fork_server import shell_files
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.source import ROOT
from tests.support.terminals import make_commands

README = (ROOT / "README.md").read_text()
FIVE_MINUTES = README.partition("\n## Federate two nodes in five minutes\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```sh\n(.*?)```", FIVE_MINUTES, re.DOTALL)
DERIVED, TOPICS, STREAMS = (
    re.findall(r"```sh\n(.*?)```", README.partition(f"\n## {title}\n")[2].partition("\n## ")[0], re.DOTALL)
    for title in ("Turn events into configuration", "Open the log to programs", "Stream over QUIC")
)
PAGES = sorted(page.relative_to(ROOT) for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PORTS = ("8781", "8782", "8783", "8784", "8785", "8786", "8787", "8788")

INSTALL = 'make venv\nexport PATH="$PWD/.venv/bin:$PATH"\n'
"""The one block that is not run: the tests have the commands installed already."""
ARRIVED = "until routerctl federation event deliveries --data-dir onprem | grep -q delivered; do sleep 0.1; done\n"
"""A reader is slower than a delivery. A script on a busy machine may not be."""


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with both commands."""
    make_commands(tmp_path / "bin")
    return tmp_path / "bin"


def follow(processes: Processes, path: str, blocks: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the blocks as one script."""
    command = ["bash", "-e"]
    return processes.run(command, env={"PATH": path}, stdin=script(blocks), seconds=100, pass_fds=shell_files())


def script(blocks: list[str]) -> str:
    """Return a script of all blocks that prints each block's place before its output; with free ports."""
    parts = ["trap 'kill -9 $onprem $cloud $node 2>/dev/null || true' EXIT\n"]
    for number, block in enumerate(blocks, start=1):
        wait = ARRIVED if "event deliveries" in block else ""
        parts.append(f"{wait}echo '=== {number}'\n{block}")
    text = "".join(parts)
    for port in PORTS:
        text = text.replace(port, str(free_port()))
    return text


def test_the_five_minutes_work_as_they_are_written(processes: Processes, commands: Path) -> None:
    assert BLOCKS[0] == INSTALL
    path = f"{commands}:/usr/local/bin:/usr/bin:/bin"
    done = follow(processes, path, BLOCKS[1:])
    told = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(told) == len(BLOCKS) - 1
    key, onprem, cloud, serve, apply, emit, find, cut, back, compare, stop = told
    assert key == onprem == cloud == serve == stop == ""
    assert apply.splitlines() == [
        "eventgroup/edge created",
        "eventpeer/cloud created",
        "eventgroup/edge created",
        "eventpeer/onprem created",
    ]
    assert re.search(r"edge +onprem +client\.seen +10\.88\.60\.9/32", emit)
    listed, _, deliveries = find.partition("EVENT_ID")
    assert re.search(r"edge +onprem +client\.seen +10\.88\.60\.9/32", listed)
    assert re.search(r"cloud +delivered ", deliveries)
    assert re.search(r"edge +cloud +backing-off +unreachable +1 ", cut) or re.search(
        r"edge +cloud +running +- +1 ", cut
    )
    assert [line.split()[3] for line in back.splitlines()[1:]] == ["client.seen", "client.gone"]
    assert re.search(r"edge +cloud +[12] +0 +0 +0 ", compare)


def test_a_fact_becomes_configuration_as_it_is_written(processes: Processes, commands: Path) -> None:
    path = f"{commands}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    done = follow(processes, path, DERIVED)
    assert done.returncode == 0, done.stdout + done.stderr
    program, check, apply, look, stop = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert program == stop == ""
    assert " failed " not in check
    assert re.search(r"^1024 events +ok +\S+ +1,024 resources$", check, re.MULTILINE)
    assert apply.splitlines() == [
        "eventgroup/edge created",
        "plugin/routes created",
        "eventsubscription/clients created",
    ]
    told = (
        r"\+ net\.example/v1/IPv4Route/client-10-88-60-9  source=EventSubscription/clients/[0-9a-f]{16}  generation=1"
    )
    assert re.search(rf"^{told}$", look, re.MULTILINE)
    assert re.search(r"^edge +clients +routes +Applied +running +0 ", look, re.MULTILINE)


def test_programs_write_and_read_as_it_is_written(processes: Processes, commands: Path) -> None:
    path = f"{commands}:/usr/local/bin:/usr/bin:/bin"
    done = follow(processes, path, TOPICS)
    assert done.returncode == 0, done.stdout + done.stderr
    begin, route, foretold, stop = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert begin == "topic/orders: 2 records written at 1 to 2\n"
    assert route.startswith("router/orders->audit created\n")
    assert re.search(r'^1 +\S+Z +shop-2 +us:new +{"item":"washer"}$', route, re.MULTILINE)
    assert re.findall(r'"item":"(\w+)"', foretold) == ["bolt", "nut"]
    assert "cycle    audit->orders  audit -> orders -> audit" in foretold
    assert foretold.endswith("do not create this one\n")
    assert stop == ""


def test_events_go_through_a_stream_as_it_is_written(processes: Processes, commands: Path) -> None:
    path = f"{commands}:/usr/local/bin:/usr/bin:/bin"
    done = follow(processes, path, STREAMS)
    assert done.returncode == 0, done.stdout + done.stderr
    shown, stop = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    created, published, *events = shown.splitlines()
    assert created == "stream/t1/default/orders created"
    assert published.endswith("2 records published at 0 to 1")
    assert events == ["bolt", "nut"]
    assert stop == ""


def test_the_readme_shows_what_the_commands_print() -> None:
    """The samples have the present columns."""
    from eventd.cli.federation.events import DELIVERIES
    from eventd.cli.federation.links_table import OUTBOUND

    for columns, first in ((DELIVERIES, "EVENT_ID"), (OUTBOUND, "GROUP")):
        (shown,) = [line for line in FIVE_MINUTES.splitlines() if line.startswith(first)]
        assert shown.split() == [column.header for column in columns if not column.wide]


@cache
def daemon() -> Any:
    """Return the commands of the daemon."""
    return typer.main.get_command(routerd_eventd_commands.app)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_call_of_the_daemon_can_be_typed(page: Path) -> None:
    """Commands of routerctl are tested with their reference."""
    text = (ROOT / page).read_text()
    for line in re.findall(r"^ *(?:\$ )?routerd-eventd ([^\n|>&#]+)|`routerd-eventd ([^`]+)`", text, re.MULTILINE):
        name, *words = "".join(line).replace("\n", " ").split()
        command = daemon().commands[name]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word.split("=")[0] for word in words if word.startswith("-")} <= known, line


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (folder / name) if name else ROOT / page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_resource_a_page_shows_can_be_declared(page: Path) -> None:
    """Only blocks of YAML that are whole resources are tested."""
    for block in re.findall(r"```yaml\n(apiVersion:.*?)```", (ROOT / page).read_text(), re.DOTALL):
        loaded = load_text(str(page), block)
        checked = [check_draft(draft) for draft in loaded.drafts]
        problems = [*loaded.problems, *(problem for found in checked if isinstance(found, list) for problem in found)]
        assert checked
        assert not problems, "\n".join(map(str, problems))
