"""The tutorial for plugins works as written, from the first command to the last."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import shell_command, shell_files
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "how-to" / "write-a-plugin.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with the commands of the page. `pip` installs into a folder of the test, and uses no index."""
    folder, site = tmp_path / "bin", tmp_path / "site"
    folder.mkdir()
    python = f'"{sys.executable}"'
    offline = "--quiet --disable-pip-version-check --no-index --no-build-isolation --no-deps --no-compile --upgrade"
    programs = {
        "routerd-eventd": f'{shell_command("eventd.cli.routerd_eventd")} "$@"',
        "routerctl": f'{shell_command("eventd.cli.routerctl")} "$@"',
        "python": f'{python} "$@"',
        "pip": f'{python} -m pip install {offline} --target "{site}" "$2"',
    }
    for name, program in programs.items():
        file = folder / name
        file.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:{site}" exec {program}\n')
        file.chmod(0o755)
    return folder


def script() -> str:
    """Return a script of all blocks that prints each block's number before its output."""
    parts = ["trap 'kill -9 $node 2>/dev/null || true' EXIT\n"]
    parts += [f"echo '=== {number}'\n{block}" for number, block in enumerate(BLOCKS)]
    return "".join(parts).replace("8784", str(free_port()))


def test_the_page_works_as_it_is_written(processes: Processes, commands: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("the last part of the page needs jq")
    env = {"PATH": f"{commands}:/usr/local/bin:/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = processes.run(["bash", "-e"], env=env, stdin=script(), seconds=110, pass_fds=shell_files())
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(told) == len(BLOCKS)
    begun, function, tested, checked, apply, declared, derived, changed, again, failing, program = told
    assert "my-claims/my_claims/__init__.py created" in begun
    assert "def plugin(event: Event)" in function
    assert "3 passed" in tested
    assert "propose.dynamicConfig" in declared
    assert [line.split()[0] for line in apply.splitlines()] == [
        "eventgroup/edge",
        "plugin/my-claims",
        "eventsubscription/my-claims",
    ]
    assert re.search(
        r"^\+ net\.example/v1/IPv4Route/client-10-88-60-9  source=EventSubscription/my-claims/", derived, re.MULTILINE
    )
    assert "2 passed" in changed
    assert "net.example/v1/HostName/printer" in again
    assert "Mode:         dry-run" in failing
    assert re.search(r"my-claims +federation-subscription +succeeded +1 ", failing)
    assert "ok\n" in program
    for table in (checked, changed, program):
        assert " failed " not in table


def test_what_the_page_shows_is_what_the_commands_print() -> None:
    """Times and digests differ from run to run; everything else is as printed on the page."""
    table, derived = SHOWN
    assert table.splitlines()[0].split() == ["CHECK", "VERDICT", "TOOK", "REASON"]
    assert re.fullmatch(
        r"\+ net\.example/v1/IPv4Route/client-10-88-60-9  source=EventSubscription/my-claims/\w{16}  generation=1\n",
        derived,
    )
