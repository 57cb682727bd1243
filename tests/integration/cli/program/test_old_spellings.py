"""Every old spelling of a command or option works, prints one notice, and is not shown; some are refused with a remedy.

The command line is parsed as typed. Where a test replaces the command's function, it shows what the function gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import typer.main
from typer._completion_classes import BashComplete

from eventd.cli import routerctl_commands, routerd_eventd_commands
from eventd.cli.program.flags import shared_flags
from eventd.cli.program.old_spellings import (
    REFUSED_OPTIONS,
    RENAMED_COMMANDS,
    RENAMED_OPTIONS,
    RENAMED_OPTIONS_OF,
    SPARK_SIZES,
    SYNONYMS,
    UNUSED_OPTIONS,
    unused_options,
)
from eventd.testing import NOW
from tests.integration.cli.conftest import Control
from tests.integration.cli.program.test_reference import commands, sections
from tests.support.fresh import make_current

APPS = {"routerctl": routerctl_commands.app, "routerd-eventd": routerd_eventd_commands.app}
REQUIRED = {
    "apply": ["-f", "-"],
    "diff": ["-f", "-"],
    "verify": ["--peer", "cloud"],
    "wait": ["--for", "ready"],
    "lake retain": ["--keep", "90d"],
    "lake close": ["--node", "gone"],
    "federation event release": ["--proof", "proof.json"],
    "audit run": ["--out", "report"],
    "audit stream": ["--out", "report"],
    "audit generate": ["--out", "lake"],
    "audit verify-report": ["--auditor-keys", "key.pub"],
}
"""Required options; required arguments are filled in."""
DAEMON_COMMANDS = ("migrate",)
"""Commands in the tables that are of `routerd-eventd`; all others are of `routerctl`."""


@cache
def program(name: str) -> Any:
    return typer.main.get_command(APPS[name])


def command_named(name: str, path: str) -> Any:
    command = program(name)
    for word in path.split():
        command = command.get_command(typer.Context(command), word)
    return command


def spellings_of(path: str) -> Iterator[str]:
    """The command under its documented names."""
    yield path
    for short, long in reversed(SYNONYMS.items()):
        if f"{path} ".startswith(f"{long} "):
            yield from spellings_of(f"{short}{path.removeprefix(long)}")


def program_of(path: str) -> str:
    return "routerd-eventd" if path in DAEMON_COMMANDS else "routerctl"


def typed(path: str) -> list[str]:
    """The words of the command with all that it requires."""
    params = command_named(program_of(path), path).params
    arguments = [param for param in params if param.param_type_name == "argument" and param.required]
    values = ["1" if param.metavar in ("NUMBER", "SEQ...") else "name" for param in arguments]
    return [*path.split(), *REQUIRED.get(path, []), *values]


def with_value(name: str, option: str) -> list[str]:
    return [option, "given"] if program(name).shared.get(RENAMED_OPTIONS.get(option, option), True) else [option]


def all_options(command: Any) -> set[str]:
    return {option for param in command.params for option in param.opts}


UNUSED = {path: unused_options(f"routerctl {path}") for path in UNUSED_OPTIONS}
TAKING_A_RENAMED_OPTION = {
    old: [
        (name, path.partition(" ")[2])
        for name, app in APPS.items()
        for path, command in commands(app, name)
        if new in all_options(command)
    ]
    for old, new in RENAMED_OPTIONS.items()
}


def old_options() -> dict[tuple[str, str], set[str]]:
    """The old options of each command: by its program and its path."""
    found: dict[tuple[str, str], set[str]] = {}
    for table in (UNUSED, REFUSED_OPTIONS):
        for path, options in table.items():
            found.setdefault((program_of(path), path), set()).update(options)
    for old, taking in TAKING_A_RENAMED_OPTION.items():
        for command in taking:
            found.setdefault(command, set()).add(old)
    for path, renamed in RENAMED_OPTIONS_OF.items():
        found.setdefault((program_of(path), path), set()).update(renamed)
    return found


class Call:
    """Types a command line whose command's function is replaced, and keeps what the function gets."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capture = capture
        self.given: Mapping[str, Any] | None = None
        self.code: int | str | None = None

    def __call__(self, name: str, path: str, words: list[str]) -> str:
        """Type it. Returns stderr."""
        self.given = None
        self._patch.setattr(command_named(name, path), "callback", self._take)
        with pytest.raises(SystemExit) as ended:
            program(name).main(args=words, prog_name=name)
        self.code = ended.value.code
        return self._capture.readouterr().err

    def _take(self, **given: Any) -> None:
        self.given = given


@pytest.fixture
def call(clean: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(monkeypatch, capsys)


@pytest.mark.parametrize("path", UNUSED)
def test_an_option_without_effect_is_accepted_with_one_notice(path: str, call: Call) -> None:
    name, usual = program_of(path), typed(path)
    assert call(name, path, usual) == ""
    without = call.given
    assert without is not None
    for option in UNUSED[path]:
        words = with_value(name, option)
        lines = [(path, [*words, *usual]), (path, [*words, *usual, *words])]
        if len(words) == 2:
            lines.append((path, [*usual, "=".join(words)]))
        arguments = usual[len(path.split()) :]
        lines += [(spelling, [*spelling.split(), *arguments, *words]) for spelling in spellings_of(path)]
        for spelling, line in lines:
            told = call(name, spelling, line)
            assert told == f'note: {option} has no effect on "{path}"; leave it out\n', line
            assert (call.code, call.given) == (0, without), line


@pytest.mark.parametrize(("old", "new"), RENAMED_OPTIONS.items())
def test_a_renamed_option_works_with_one_notice(old: str, new: str, call: Call) -> None:
    for name, path in TAKING_A_RENAMED_OPTION[old]:
        usual = typed(path) if name == "routerctl" else path.split()
        assert call(name, path, [*usual, new, "given"]) == ""
        expected = call.given
        assert expected is not None
        assert "given" in expected.values()
        for line in ([*usual, old, "given"], [old, "given", *usual], [*usual, f"{old}=x", f"{old}=given"]):
            notice = f"note: {old} is now called {new}; the old name still works\n"
            assert call(name, path, line) == notice, line
            assert (call.code, call.given) == (0, expected), line


@pytest.mark.parametrize("path", RENAMED_OPTIONS_OF)
def test_a_renamed_option_of_one_command_works_with_one_notice(path: str, call: Call) -> None:
    name, usual = program_of(path), typed(path)
    for old, new in RENAMED_OPTIONS_OF[path].items():
        at = usual.index(new)
        assert call(name, path, usual) == ""
        expected = call.given
        former = [*usual[:at], old, *usual[at + 1 :]]
        joined = [*usual[:at], f"{old}={usual[at + 1]}", *usual[at + 2 :]]
        for line in (former, joined):
            assert call(name, path, line) == f"note: {old} is now called {new}; the old name still works\n"
            assert (call.code, call.given) == (0, expected), line


@pytest.mark.parametrize(("old", "new"), RENAMED_COMMANDS.items())
def test_a_renamed_command_works_with_one_notice(old: str, new: str, call: Call) -> None:
    assert call("routerctl", new, new.split()) == ""
    expected = call.given
    for spelling in spellings_of(old):
        notice = f"note: {old} is now called {new}; the old name still works\n"
        assert call("routerctl", spelling, spelling.split()) == notice
        assert (call.code, call.given) == (0, expected)


@pytest.mark.parametrize("path", REFUSED_OPTIONS)
def test_an_option_that_cannot_work_is_refused_with_a_remedy(path: str, call: Call) -> None:
    for option, words in REFUSED_OPTIONS[path].items():
        for line in ([*typed(path), option], [*typed(path), f"{option}=3"]):
            told = call("routerctl", path, line)
            assert told == f"error: no such option: {option} ({words}; see routerctl {path} --help)\n"
            assert (call.code, call.given) == (2, None)


def test_an_old_option_is_in_neither_help_nor_completion_nor_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    for (name, path), options in old_options().items():
        with pytest.raises(SystemExit):
            program(name).main(args=[*path.split(), "--help"], prog_name=name)
        shown = {word.rstrip(",") for word in capsys.readouterr().out.split()}
        assert not options & shown, path
        for option in options:
            before = [*path.split(), option, "x"]
            completed = BashComplete(program(name), {}, name, "_COMPLETE").get_completions(before, "--")
            assert completed, before
            assert option not in [item.value for item in completed], before
            with pytest.raises(SystemExit):
                program(name).main(args=[*path.split(), f"{option}x"], prog_name=name)
            told = capsys.readouterr().err
            assert told.startswith(f"error: no such option: {option}x ("), before
            assert option not in told.replace(f"{option}x", "").replace(",", " ").replace(")", " ").split(), before


@pytest.mark.parametrize("old", RENAMED_COMMANDS)
def test_an_old_command_is_in_neither_help_nor_completion(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    *group, name = old.split()
    with pytest.raises(SystemExit):
        program("routerctl").main(args=[*group, "--help"], prog_name="routerctl")
    assert name not in [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    completed = BashComplete(program("routerctl"), {}, "routerctl", "_COMPLETE").get_completions(group, name[:2])
    assert name not in [item.value for item in completed]
    assert capsys.readouterr().err == ""


def test_an_option_without_effect_is_one_that_the_command_does_not_offer() -> None:
    for path, unused in UNUSED_OPTIONS.items():
        name = program_of(path)
        assert not all_options(command_named(name, path)) & {*unused, *REFUSED_OPTIONS.get(path, ())}, path
        assert set(unused) <= set(program(name).shared), path


def test_migrate_accepts_every_setting_that_it_accepted_before() -> None:
    """A setting that is added later is not among them."""
    tls = {f"--api-tls-{name}" for name in ("cert-file", "key-file", "client-ca-file", "min-version")}
    addresses = {"--callback-allow", "--callback-deny", "--peer-allow", "--peer-deny"}
    added_later = {"--local-socket", "--api-clients", "--attempt-retention", "--action-retention", "--notices-topic"}
    added_later |= tls | addresses
    offered = all_options(command_named("routerd-eventd", "migrate"))
    added_later |= {flag for flag in shared_flags() if flag.startswith(("--routemaster-", "--quic-", "--console"))}
    added_later |= {"--max-console-streams", "--audit-reports", "--trust-trace-hints"}
    assert {*offered, *UNUSED_OPTIONS["migrate"]} >= set(shared_flags()) - added_later


def test_an_empty_value_is_refused_also_without_effect(call: Call) -> None:
    told = call("routerctl", "lake check", ["lake", "check", "--server", ""])
    assert told == (
        "error: invalid value for '--server': must not be empty: write a value, or leave it out"
        " (see routerctl lake check --help)\n"
    )
    assert call.code == 2


def test_an_empty_value_with_a_meaning_is_accepted_also_without_effect(call: Call) -> None:
    told = call("routerd-eventd", "migrate", ["migrate", "--lake", ""])
    assert (call.code, told) == (0, 'note: --lake has no effect on "migrate"; leave it out\n')


def test_an_argument_behind_two_dashes_is_not_an_option(call: Call) -> None:
    told = call("routerctl", "topic write", ["topic", "write", "jobs", "--", "--no-headers", "--database-url"])
    assert told == ""
    assert call.given is not None
    assert call.given["values"] == ["--no-headers", "--database-url"]


def test_an_option_without_effect_changes_no_output(control: Control) -> None:
    (control.folder / "eventd-data").mkdir()
    make_current(f"sqlite:///{control.folder / 'eventd-data' / 'eventd.db'}", now=NOW)
    usual = control("key", "revoke", "none", "-o", "json", code=None)
    old = control("--no-headers", "key", "revoke", "none", "-o", "json", code=None)
    assert (old.code, old.out) == (usual.code, usual.out)
    assert old.err == f'note: --no-headers has no effect on "key revoke"; leave it out\n{usual.err}'


def block_of_old_spellings() -> str:
    """The table of old spellings in the reference."""
    unused: dict[tuple[str, ...], list[str]] = {}
    for path, options in UNUSED_OPTIONS.items():
        named = f"{program_of(path)} {path}" if path in DAEMON_COMMANDS else path
        unused.setdefault(options, []).append(named)
    rows = [(f"`{old}`", f"`{new}`") for old, new in (RENAMED_OPTIONS | RENAMED_COMMANDS).items()]
    for path, renamed in RENAMED_OPTIONS_OF.items():
        rows += [(f"`{old}` of `{path}`", f"`{new}`") for old, new in renamed.items()]
    (option,) = set(SPARK_SIZES.values())
    rows.append((f"`{option} 2g`, as Spark writes sizes, of {_code(SPARK_SIZES)}", f"`{option} 2GiB`"))
    rows += [(f"{_code(options)} of {_code(paths)}", "No effect. Leave it out.") for options, paths in unused.items()]
    return "\n".join(["| Old spelling | Now |", "|---|---|", *(f"| {old} | {now} |" for old, now in rows)])


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def test_the_reference_lists_the_old_spellings() -> None:
    block = block_of_old_spellings()
    assert f"\n{block}\n" in sections("cli.md"), f"docs/reference/cli.md lacks this table:\n\n{block}"


@pytest.mark.parametrize(("path", "option"), SPARK_SIZES.items())
def test_memory_may_be_given_in_the_notation_of_spark(path: str, option: str, call: Call) -> None:
    usual = typed(path)
    sizes = {"2g": "2GiB", "512mb": "512MiB", "2G": "2GiB", "4194304k": "4194304KiB", "1t": "1TiB"}
    for old, now in sizes.items():
        assert call("routerctl", path, [*usual, option, now]) == ""
        expected = call.given
        for words in ([option, old], [f"{option}={old}"]):
            notice = f"note: {option} {old} is now written {now}; the old spelling still works\n"
            assert call("routerctl", path, [*usual, *words]) == notice
            assert (call.code, call.given) == (0, expected)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("512KiB", "must be at least 512MiB, not '512KiB'"),
        ("1k", "must be at least 512MiB"),
        ("g", "'g' is not a size"),
    ],
)
def test_memory_is_a_size_as_everywhere(size: str, reason: str, call: Call) -> None:
    told = call("routerctl", "audit run", [*typed("audit run"), "--memory", size])
    assert f"error: invalid value for '--memory': {reason}" in told
    assert call.code == 2
