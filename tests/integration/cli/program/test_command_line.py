"""The help and the errors of both programs: option texts in the project's words, errors on one line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer._click.core import ParameterSource

from eventd.cli import routerctl_commands, routerd_eventd_commands
from eventd.cli.gateway.event_loop import _run
from eventd.testing import NOW
from tests.integration.cli.conftest import Control
from tests.integration.cli.program.test_reference import commands
from tests.support.fresh import make_current
from tests.support.processes import CONTROL, DAEMON
from tests.support.source import ROOT

PROGRAMS = {"routerctl": routerctl_commands.app, "routerd-eventd": routerd_eventd_commands.app}
MAY_BE_EMPTY = {
    "routerctl": {"routerctl federation event emit --subject", "routerctl topic write --tag"},
    "routerd-eventd": {f"routerd-eventd {command} --lake" for command in ("serve", "check")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_option_shows_a_type_of_the_language(name: str) -> None:
    for path, command in commands(PROGRAMS[name], name):
        help = command.get_help(typer.Context(command, info_name=path))
        assert not re.search(r"--[a-z-]+.*<(bool|str|path|list)", help), path


@pytest.mark.parametrize(
    ("program", "arguments", "told"),
    [
        ("routerctl", ["fed", "links", "--zzzz"], "no such option: --zzzz (see routerctl fed links --help)"),
        ("routerctl", ["-o", "json"], "no such option: -o (add a command; see routerctl --help)"),
        ("routerctl", ["fed", "-o"], "no such option: -o (add a command; see routerctl fed --help)"),
        (
            "routerctl",
            ["get", "eg", "-o", "xml"],
            "invalid value for '-o' / '--output': 'xml' is not one of table, wide, json, yaml, name, jsonpath=TEMPLATE"
            " (see routerctl get --help)",
        ),
        *(
            (
                "routerctl",
                [*group, "dead-letters", "list"],
                "no such command 'dead-letters': `routerctl describe EventSubscription NAME` shows the latest dead"
                f" letters, and `routerctl subscription retry NAME` runs them again (see routerctl {' '.join(group)}"
                " --help)",
            )
            for group in (["subscription"], ["fed", "subscription"])
        ),
        *(
            (
                "routerctl",
                [command],
                f"missing argument '{argument}' (routerctl api-resources lists the kinds; see routerctl {command}"
                " --help)",
            )
            for command, argument in (("get", "KIND"), ("edit", "KIND/NAME"), ("explain", "KIND[.FIELD]"))
        ),
        ("routerctl", ["gte"], "no such command 'gte': did you mean get? (see routerctl --help)"),
        (
            "routerctl",
            ["lake", "compact", "--after", "soon"],
            "invalid value for '--after': 'soon' is not a duration; write 30s, 5m or 168h"
            " (units are ns, us, ms, s, m, h and d, without blanks) (see routerctl lake compact --help)",
        ),
        (
            "routerctl",
            ["bench", "ingest", "--size", "1B"],
            "invalid value for '--size': must be at least 32, not '1B' (see routerctl bench ingest --help)",
        ),
        ("routerctl", ["--zzzz", "get"], "no such option: --zzzz (see routerctl --help)"),
        (
            "routerctl",
            ["topic", "write", "jobs", "-5"],
            "no such option: -5 (before an argument that begins with a dash, write --;"
            " see routerctl topic write --help)",
        ),
        ("routerctl", ["nope"], "no such command 'nope' (see routerctl --help)"),
        (
            "routerctl",
            ["fed", "event", "list", "--limit", "x"],
            "invalid value for '--limit': must be a whole number, not 'x' (see routerctl fed event list --help)",
        ),
        (
            "routerctl",
            ["fed", "event", "list", "--limit", "-1"],
            "invalid value for '--limit': must be at least 0, not '-1' (see routerctl fed event list --help)",
        ),
        (
            "routerd-eventd",
            ["serve", "--api-listen", "127.0.0.1:0", "extra"],
            "got unexpected extra argument(s) (extra) (see routerd-eventd serve --help)",
        ),
        (
            "routerctl",
            ["delete", "-f", ""],
            "invalid value for '--filename' / '-f': must not be empty: write a value, or leave it out"
            " (see routerctl delete --help)",
        ),
        (
            "routerctl",
            ["fed", "pause", " "],
            "invalid value for 'PEER': must not be empty: write a value (see routerctl fed pause --help)",
        ),
    ],
)
def test_a_mistake_is_one_line(
    program: str, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree: Any = typer.main.get_command(PROGRAMS[program])
    with pytest.raises(SystemExit) as ended:
        tree.main(args=arguments, prog_name=program)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_empty_value_is_refused_unless_it_means_something(name: str) -> None:
    taken = set()
    for path, command in commands(PROGRAMS[name], name):
        context = typer.Context(command)
        for param in command.get_params(context):
            if param.param_type_name == "option" and param.is_flag:
                continue
            context.set_parameter_source(param.name, ParameterSource.COMMANDLINE)
            empty = ("x", "") if param.multiple or param.nargs == -1 else ""
            with contextlib.suppress(typer.BadParameter):
                param.process_value(context, empty)
                taken.add(f"{path} {param.opts[-1]}")
    assert taken == MAY_BE_EMPTY[name]


def test_a_variable_that_is_set_to_blanks_counts_as_unset() -> None:
    (command,) = [command for path, command in commands(routerctl_commands.app, "routerctl") if path == "routerctl get"]
    for variable in ("", " "):
        with command.make_context("get", ["eg"]) as plain, pytest.MonkeyPatch.context() as patch:
            patch.setenv("EVENTD_SERVER", variable)
            patch.setenv("EVENTD_API_KEY_FILE", variable)
            with command.make_context("get", ["eg"]) as context:
                assert context.params == plain.params


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        (["get"], "routerctl get [OPTIONS] KIND [NAME]..."),
        (["topic", "write"], "routerctl topic write [OPTIONS] TOPIC JSON..."),
        (["fed", "dead-letters", "retry"], "routerctl fed dead-letters retry [OPTIONS] [ID]..."),
    ],
)
def test_the_usage_of_a_command_names_its_arguments_as_they_are(
    path: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree: Any = typer.main.get_command(routerctl_commands.app)
    with pytest.raises(SystemExit) as ended:
        tree.main(args=[*path, "--help"], prog_name="routerctl")
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert told.splitlines()[0] == f"Usage: {usage}"
    assert "\nOptions:\n" in told
    assert "\nOutput:\n" in told
    assert not re.search(r" <(str|int|list)", told)


@pytest.fixture
def sigterm_ends() -> Iterator[None]:
    """As in a process that a shell has started, however this one was started."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_ends")
async def test_a_signal_while_a_command_lets_go_of_its_node_ends_it_without_a_traceback() -> None:
    async def close() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.get_running_loop().create_future()

    async def nothing() -> None:
        """Done at once."""

    with pytest.raises(SystemExit) as ended:
        await _run(nothing, close)
    assert ended.value.code == 128 + signal.SIGTERM


@pytest.mark.parametrize("closed", [">&-", "<&- 2>&-"])
def test_a_standard_stream_may_be_closed(closed: str, control: Control) -> None:
    """Without its output a command does nothing: a key would be made and never shown."""
    where = ["--data-dir", str(control.folder)]
    make_current(f"sqlite:///{control.folder / 'eventd.db'}", now=NOW)
    make = [*CONTROL, "key", "create", "ci", *where]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *make], capture_output=True, text=True, cwd=ROOT)
    kept = control("key", "list", "-o", "name", *where).lines
    if closed == ">&-":
        assert done.returncode == 1
        assert done.stderr == "error: standard output is closed (redirect it to /dev/null to discard it)\n"
        assert kept == []
    else:
        assert done.returncode == 0
        assert done.stdout.startswith("evk_")
        assert kept == ["ci"]


def test_a_daemon_needs_no_standard_stream(tmp_path: Path) -> None:
    """Init scripts close all three."""
    migrate = [*DAEMON, "migrate", "--data-dir", str(tmp_path)]
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *migrate])
    assert done.returncode == 0
    assert (tmp_path / "eventd.db").is_file()


INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from eventd.cli.{program} import main
main()
"""


@pytest.mark.parametrize(
    ("program", "module"), [("routerctl", "typer"), ("routerd_eventd", "typer"), ("routerd_eventd", "pydantic")]
)
def test_ctrl_c_while_a_program_loads_leaves_no_traceback(program: str, module: str) -> None:
    source = INTERRUPTED.format(program=program, module=module)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "yaml", "get", "eg"],
        ["get", "-o", "yaml", "eg"],
        ["get", "eg", "--output=yaml"],
        ["-oyaml", "get", "eg"],
        ["-o", "json", "get", "eg", "-o", "yaml"],
    ],
)
def test_a_shared_option_stands_before_or_after_the_command(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree: Any = typer.main.get_command(routerctl_commands.app)
    make_current(f"sqlite:///{tmp_path / 'eventd.db'}", now=NOW)
    with pytest.raises(SystemExit) as ended:
        tree.main(args=["--data-dir", str(tmp_path), *words], prog_name="routerctl")
    assert ended.value.code == 0
    assert capsys.readouterr().out == "[]\n"


def test_each_command_stands_under_one_heading_of_the_help() -> None:
    listed = [name for names in routerctl_commands.HEADINGS.values() for name in names]
    shown = [name for name, one in routerctl_commands.COMMANDS.items() if not one.hidden]
    assert sorted(listed) == sorted(shown)
