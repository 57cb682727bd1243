"""From the words of a command line to values.

The library gives each word to pydantic, which takes as long to load as all else that a command on a server needs. A
word that is plainly what it should be is read here; any other goes the library's way, which says what is wrong with it.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from typer.models import OptionInfo

from eventd.text.quoting import with_value

DIGITS = 18
"""Of a number that is read here. No number that a command takes has more."""
_UNSURE = object()


class MayBeEmpty(OptionInfo):
    """An option whose empty value means something. Of every other parameter an empty value is refused."""

    def __init__(self, flag: str, **about: Any) -> None:
        super().__init__(default=..., param_decls=(flag,), **about)


def read_words(command: Any) -> None:
    """Read what is plain without the library, for every parameter of a command and of those below it."""
    for param in command.params:
        if not isinstance(param.get_runtime_param, _Words):  # a group in a group has been here already
            param.get_runtime_param = _Words(param)
    for inner in getattr(command, "commands", {}).values():
        read_words(inner)


class _Words:
    """In the place of a parameter's `get_runtime_param`: what that gives has a `coerce`, too."""

    def __init__(self, param: Any) -> None:
        self._descriptor = param.type_descriptor
        self._theirs = param.get_runtime_param

    def __call__(self) -> _Words:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of what was said. Raises the library's `BadParameter`."""
        if _is_blank(value) and not isinstance(self._descriptor.parameter_info, MayBeEmpty):
            source = getattr(ctx.get_parameter_source(param.name), "name", "")
            if source == "COMMANDLINE":
                raise typer.BadParameter(_blank_message(param))
            value = param.default if source == "ENVIRONMENT" else value  # a blank variable counts as unset
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        found = _plain(value, self._descriptor.annotation, self._descriptor.parameter_info)
        if found is not _UNSURE:
            return found
        try:
            return self._theirs().coerce(value, param, ctx)
        except typer.BadParameter as error:
            error.message = _with_value(error.message, value, param.name)
            raise


def _is_blank(value: Any) -> bool:
    ones = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, str) and not one.strip() for one in ones)


def _blank_message(param: Any) -> str:
    """What to do about an empty value, by which a script with an unset variable would mean everything."""
    way = "write a value" if param.required else "write a value, or leave it out"
    return f"must not be empty: {way}"


def _with_value(message: str, value: Any, name: str) -> str:
    """What the library says, with the value where it leaves that out."""
    words = message.removesuffix(".")
    if words.startswith("Input should"):
        words = with_value(words.replace("Input should", "must"), value, name)
    return words


def _plain(value: Any, wanted: Any, info: Any) -> Any:
    """What these words are, where there is no doubt."""
    if get_origin(wanted) is list and isinstance(value, list | tuple):
        found = [_plain(one, get_args(wanted)[0], info) for one in value]
        return _UNSURE if _UNSURE in found else found
    if wanted is int and type(value) is int:
        return value  # what goes without saying
    if not isinstance(value, str):
        return _UNSURE
    if wanted is str or (get_origin(wanted) is Literal and value in get_args(wanted)):
        return value
    if wanted is Path and (os.access(value, os.R_OK) or not os.path.exists(value)):
        return Path(value)
    if wanted is int and len(value) <= DIGITS and value.isascii() and value.isdecimal():
        return int(value) if _fits(int(value), info.min, info.max) else _UNSURE
    if isinstance(wanted, type) and issubclass(wanted, StrEnum) and value in list(wanted):
        return wanted(value)
    return _UNSURE


def _fits(number: int, least: float | None, most: float | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)
