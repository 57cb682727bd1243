"""Turns settings into flags, except those that must not be on a command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eventd.cli.program.declaring import declare
from eventd.cli.program.values import EMPTY_SETTINGS, MayBeEmpty
from eventd.settings.loading import load
from eventd.settings.model import NAMES, Settings, flag_of, variable_of

_METAVARS = {
    "lake_compact_after": "AGE",
    "max_sse_connections_per_key": "CONNECTIONS",
    "max_inflight_per_key": "REQUESTS",
}
"""Placeholders of values for which the last word of the flag would be misleading."""
_PANEL = "Settings (flags, then EVENTD_* variables, then the file, then defaults)"


@dataclass(frozen=True, slots=True)
class Flags:
    """The settings on the command line, not validated yet, None for each that is absent; and the settings file."""

    values: dict[str, Any]
    file: Path | None

    def load(self) -> Settings:
        """Return the settings in effect. Raises `BadSettings`."""
        return load(self.values, file=self.file)


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes `Flags` first: it gets the flags of the settings `names` (default: of all)."""
    mirrored = {name: _parameter(name) for name in names or NAMES if flag_of(name)}
    file = typer.Option("--config", help="TOML or YAML file with settings. [EVENTD_CONFIG]", rich_help_panel=_PANEL)
    config = _keyword("config", Annotated[Path | None, file])

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in mirrored}
            command(Flags(values, given.pop("config")), **given)

        return declare(run, command, [*own, config, *mirrored.values()])

    return decorate


def shared_flags() -> dict[str, bool]:
    """Return every flag of a setting, and `--config`, each with whether it takes a value."""
    names = {flag: Settings.model_fields[name].annotation for name in Settings.model_fields if (flag := flag_of(name))}
    return {"--config": True} | {flag: kind is not bool for flag, kind in names.items()}


def _parameter(name: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    text = f"{(field.description or '').replace('`', '')} [{variable_of(name)}]"
    make = MayBeEmpty if flag_of(name) in EMPTY_SETTINGS else typer.Option
    flag = flag_of(name)
    if field.annotation is bool and field.default is True:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    option = make(flag, help=text, rich_help_panel=_PANEL, show_default=False, metavar=_METAVARS.get(name))
    kind: Any = bool | None if field.annotation is bool else str | None
    return _keyword(name, Annotated[kind, option])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
