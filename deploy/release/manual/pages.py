"""`make manual`: one page for each program, for each command of routerctl, and for the settings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from deploy.release.manual.mdoc import Page, argument, plain
from deploy.release.source import ROOT
from eventd.cli import routerctl_commands, routerd_eventd_commands
from eventd.cli.gateway.options import SHARED
from eventd.cli.program.exits import ExitCode
from eventd.cli.program.flags import _PANEL as SETTINGS_PANEL
from eventd.cli.program.params import own
from eventd.settings.loading import load
from eventd.settings.model import Settings, flag_of, variable_of

MAN = ROOT / "deploy" / "man"
PAGES_OF_ALL = [("routerctl", 1), ("routerd-eventd", 8), ("routerd-eventd.conf", 5)]
_PANELS = {name: annotation.__metadata__[0].rich_help_panel for name, (annotation, _) in SHARED.items()}
"""The heading under which `--help` shows each shared option."""
EXITS = {
    ExitCode.OK: "It worked.",
    ExitCode.ERROR: "An error; it is one line on standard error.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.NOT_FOUND: "A named object does not exist.",
    ExitCode.CHECK_FAILED: "A check failed.",
}


def pages() -> dict[str, str]:
    """Return the text of every page by its path below `deploy/man`."""
    root = typer.main.get_command(routerctl_commands.app)
    context = typer.Context(root)
    nouns = {name: root.get_command(context, name) for name in root.list_commands(context)}  # type: ignore[attr-defined]
    nouns = {name: command for name, command in nouns.items() if not command.hidden}
    made = [_routerctl(nouns), _routerd_eventd(), _settings(), *(_noun(name, nouns) for name in nouns)]
    return {f"man{page.section}/{page.name}.{page.section}": str(page) for page in made}


def _routerctl(nouns: dict[str, Any]) -> Page:
    page = Page("routerctl", 1, "operate a node of a federated event bus")
    page.heading("SYNOPSIS")
    page.macro(".Nm", ".Ar command", ".Op Ar subcommand", ".Op Ar options")
    page.heading("DESCRIPTION")
    page.text(
        "Works on a node of `routerd-eventd(8)`: on another machine over its API, on this one over its local socket,"
        " or, while it is down, on its database.",
        "Each command has a page of its own, such as `routerctl-apply(1)`, and a description with `--help`.",
    )
    page.subheading("Commands")
    page.terms((f"Xr routerctl-{name} 1", _first(command)) for name, command in nouns.items())
    page.subheading("Options of most commands")
    page.text("They may be given before or after the command. Each command's `--help` lists those that it uses.")
    shared = {
        param.name: own(param) for _, command in _every(nouns) for param in command.params if param.name in SHARED
    }
    page.terms(_option(shared[name]) for name in SHARED)
    page.heading("ENVIRONMENT")
    page.text("An empty variable counts as unset.")
    variables = {param.envvar: param.help for param in shared.values() if param.envvar}
    page.terms((f"Ev {name}", f"The same as an option: {text}") for name, text in variables.items())
    page.heading("FILES")
    page.terms([("Pa ~/.config/routerctl/contexts.yaml", "The contexts, which `routerctl-context(1)` manages.")])
    _exits(page)
    page.heading("EXAMPLES")
    page.text("Show the links of the node on this machine:")
    page.literal("routerctl federation links")
    page.text("Check another node, whose key is in a file:")
    page.literal("routerctl doctor --server https://site-b.example:8780 --key-file key")
    page.references([*PAGES_OF_ALL, *((f"routerctl-{name}", 1) for name in nouns)])
    return page


def _noun(name: str, nouns: dict[str, Any]) -> Page:
    """Return the page of one command of routerctl, with all commands below it."""
    found = list(_walk(nouns[name], name))
    page = Page(f"routerctl-{name}", 1, _lower(_first(nouns[name])))
    page.heading("SYNOPSIS")
    for path, command in found:
        page.macro(*_synopsis("routerctl", path, command))
    page.heading("DESCRIPTION")
    if len(found) == 1:
        page.text(" ".join(found[0][1].help.split()))
        page.terms(_params(found[0][1]))
    else:
        page.text(_first(nouns[name]))
        for path, command in found:
            page.subheading(" ".join([path, *_arguments(command)]))
            page.text(" ".join(command.help.split()))
            page.terms(_params(command))
    page.text("The options that name the node and the form of the output are in `routerctl(1)`.")
    _exits(page)
    page.references(PAGES_OF_ALL)
    return page


def _routerd_eventd() -> Page:
    root = typer.main.get_command(routerd_eventd_commands.app)
    context = typer.Context(root)
    names = root.list_commands(context)  # type: ignore[attr-defined]
    found = [each for name in names for each in _walk(root.get_command(context, name), name)]  # type: ignore[attr-defined]
    page = Page("routerd-eventd", 8, "a node of a federated event bus")
    page.heading("SYNOPSIS")
    for path, command in found:
        page.macro(*_synopsis("routerd-eventd", path, command))
    page.heading("DESCRIPTION")
    page.text(
        "A node keeps a log of events, on SQLite or on Postgres, and exchanges them with its peers over signed HTTP."
        " An event that it has acknowledged is on its disk, reaches each peer it is meant for once, and its delivery"
        " can be proven. `routerctl(1)` operates it.",
        "`serve`, `check` and `migrate` also accept the flags of the settings in `routerd-eventd.conf(5)`.",
    )
    for path, command in found:
        page.subheading(" ".join([path, *_arguments(command)]))
        page.text(" ".join(command.help.split()))
        page.terms(_params(command))
    page.subheading("Signals")
    page.terms(
        [
            ("Dv SIGTERM , SIGINT", "Finish the work in progress within `drain_timeout`, and exit with status 0."),
            ("Dv SIGHUP", "Read the files of secrets, API keys, certificates and CAs again."),
        ]
    )
    page.heading("ENVIRONMENT")
    page.text(
        "Each setting has a variable, such as `EVENTD_DATA_DIR`; they are listed in `routerd-eventd.conf(5)`."
        " Under a service manager that sets `NOTIFY_SOCKET`, the node reports its state to it."
    )
    page.heading("FILES")
    page.terms(
        [
            ("Pa eventd.db", "The database, in the data folder."),
            ("Pa eventd.db.head", "The last acknowledged position, with which the node detects an older copy."),
            ("Pa eventd.sock", "The local socket, for `routerctl(1)` on the same machine."),
            ("Pa /etc/routerd-eventd/environment", "Variables of the service, with the units of systemd."),
        ]
    )
    _exits(page)
    page.references(PAGES_OF_ALL)
    return page


def _settings() -> Page:
    page = Page("routerd-eventd.conf", 5, "settings of a node of a federated event bus")
    page.heading("DESCRIPTION")
    page.text(
        "Settings are what a node of `routerd-eventd(8)` needs before it opens its database. Groups and peers are no"
        " settings: they are resources in the database, which `routerctl-apply(1)` applies.",
        "A node takes each setting from the first of these places that has a value: a flag, an environment variable,"
        " the settings file, the default. The flag `--config` or the variable `EVENTD_CONFIG` names the file; its name"
        " ends in `.toml`, `.yaml` or `.yml`. An unknown key in it is an error.",
        "`routerd-eventd check` shows the value of each setting, and where it comes from.",
    )
    page.subheading("Settings")
    page.text("Each with its key in the file, its flag if it has one, its variable, and its default if it has one.")
    shown = {row.name: row.value for row in load({}, {}).describe()} | {"data_dir": "./eventd-data", "database_url": ""}
    page.terms(_setting(name, shown.get(name, "")) for name in Settings.model_fields)
    page.subheading("Values")
    page.text(
        "A duration is written `500ms`, `30s`, `1h30m` or `7d`; a size `65536`, `512KiB` or `16MiB`; a switch `true` or"
        " `false`; an address `127.0.0.1:8780` or `[::1]:8780`. A file of secrets is a path, or `credential:NAME` for"
        " the file of that name in the folder that `CREDENTIALS_DIRECTORY` names, as systemd sets it."
    )
    page.heading("EXAMPLES")
    page.literal('data_dir = "/var/lib/routerd-eventd"', 'api_listen = "127.0.0.1:9000"', 'drain_timeout = "30s"')
    page.references(PAGES_OF_ALL)
    return page


def _setting(name: str, default: str) -> tuple[str, str]:
    spelled = [f"`{flag}`"] if (flag := flag_of(name)) else []
    spelled.append(f"`{variable_of(name)}`")
    end = f" Default: `{default}`." if default else ""
    return f"Ic {argument(name)}", f"{Settings.model_fields[name].description} {', '.join(spelled)}.{end}"


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        if not (inner := command.get_command(context, name)).hidden:
            yield from _walk(inner, f"{path} {name}")


def _every(nouns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, command in nouns.items():
        yield from _walk(command, name)


def _first(command: Any) -> str:
    """Return the first sentence of a command's help, which lists show."""
    return str(command.help or "").strip().split("\n\n")[0].replace("\n", " ").strip()


def _lower(sentence: str) -> str:
    first, rest = sentence.split(" ", 1)
    return f"{first.lower() if first.istitle() else first} {rest}".rstrip(".").replace("`", "")


def _own(command: Any) -> list[Any]:
    """Return the parameters that no other page has; those of the node and of the output are in routerctl(1)."""
    params = [param for param in command.params if param.name != "help" and not param.hidden]
    return [own(one) for one in params if one.rich_help_panel != SETTINGS_PANEL and not _is_shared(one)]


def _is_shared(param: Any) -> bool:
    return bool(_PANELS.get(param.name, "") == param.rich_help_panel)


def _arguments(command: Any) -> list[str]:
    return [str(param.metavar or param.name) for param in _own(command) if param.param_type_name == "argument"]


def _synopsis(program: str, path: str, command: Any) -> list[str]:
    lines = [f".Nm {program}", f".Ic {path}"]
    if any(param.param_type_name == "option" for param in _own(command)):
        lines.append(".Op Ar options")
    return [*lines, *(f".Ar {argument(name)}" for name in _arguments(command))]


def _params(command: Any) -> list[tuple[str, str]]:
    return [_option(param) for param in _own(command)]


def _option(param: Any) -> tuple[str, str]:
    """Return the head of a list item, and the text: what `--help` says of an option or an argument."""
    default = "" if param.default in (None, "", False, []) or param.is_flag else f" Default: `{param.default}`."
    if param.param_type_name == "argument":
        return f"Ar {argument(str(param.metavar or param.name))}", f"{param.help or ''}{default}"
    value = "" if param.is_flag else f" Ar {argument(param.value_name)}"
    names = " , ".join(f"Fl {plain(name.removeprefix('-'))}{value}" for name in (*param.opts, *param.secondary_opts))
    variable = f" The variable is `{param.envvar}`." if param.envvar else ""
    required = " Required." if param.required else ""
    return names, f"{param.help or ''}{variable}{required}{default}"


def _exits(page: Page) -> None:
    page.heading("EXIT STATUS")
    page.terms((str(int(code)), EXITS[code]) for code in ExitCode)


def main(target: Path = MAN) -> None:
    """Write all pages; pages of commands that are gone are deleted."""
    made = pages()
    shutil.rmtree(target, ignore_errors=True)
    for name, text in made.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    print(f"{len(made)} manual pages in {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
