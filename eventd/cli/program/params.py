"""Options and arguments that parse their own values and describe themselves in plain text."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import typer
from typer.core import CompletionItem, TyperArgument, TyperOption  # type: ignore[attr-defined]

from eventd.cli.program.old_spellings import renamed_value
from eventd.cli.program.values import EMPTY_SETTINGS, Duration, MayBeEmpty, Size, choices_of, read_word
from eventd.cli.terminal.output import note
from eventd.errors import Invalid


class _Parameter:
    """The base of `Argument` and `Option`, which parses values according to the declared type."""

    def process_value(self: Any, ctx: typer.Context, value: Any) -> Any:
        """Return the converted value: of the command line, a variable, or the default. Raises typer's BadParameter."""
        value = self._read(ctx, value)
        if self.required and self.value_is_missing(value):
            return super().process_value(ctx, None)  # type: ignore[misc]  # which says what is missing
        return value if self.callback is None else self.callback(ctx, self, value)

    def _read(self: Any, ctx: typer.Context, value: Any) -> Any:
        if _is_blank(value) and not isinstance(self.type_descriptor.parameter_info, MayBeEmpty):
            source = getattr(ctx.get_parameter_source(self.name), "name", "")
            if source == "COMMANDLINE":
                raise typer.BadParameter(_blank_message(self), ctx=ctx, param=self)
            value = self.default if source == "ENVIRONMENT" else value  # an empty variable counts as unset
        several = self.multiple or self.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self._read_one(ctx, one) for one in value] if several else self._read_one(ctx, value)
        except Invalid as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=self) from None
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=self) from None

    def shell_complete(self: Any, ctx: Any, incomplete: str) -> list[Any]:
        """Return the completions of a value: those that the declaration names, or the choices of its type."""
        choices = choices_of(self.type_descriptor.annotation) if self.type_descriptor else ()
        if not choices or self._custom_shell_complete is not None:
            found: list[Any] = super().shell_complete(ctx, incomplete)  # type: ignore[misc]
            return found
        words = [f"{name}{free}" for name, free, _ in (str(choice).partition("=") for choice in choices)]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    def _read_one(self: Any, ctx: typer.Context, value: Any) -> Any:
        kind = self.type_descriptor.annotation
        if isinstance(value, str) and (now := renamed_value(ctx.command_path, self.opts[-1], value)) != value:
            if not ctx.resilient_parsing:  # completion
                note(f"note: {self.opts[-1]} {value} is now written {now}; the old spelling still works")
            value = now
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        read = read_word(value, kind, self.min, self.max) if isinstance(value, str) else value
        return int(read) if isinstance(read, Duration | Size) else read  # handled before the command

    def _remarks(self: Any, default: Any) -> str:
        """Return the remarks that the help adds to the description: the default, the bounds, whether the parameter is
        required."""
        shown = default not in (None, "", False, []) and self.show_default
        bounds = {"at least": self.min, "at most": self.max} if self.min or self.max is not None else {}
        kind = self.type_descriptor.annotation
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        remarks = [f"default: {default}"] if shown else []
        remarks += [f"{words} {kind(bound)}" for words, bound in bounds.items() if bound is not None]
        remarks += ["required"] if self.required else []
        return f"  [{'; '.join(remarks)}]" if remarks else ""


class Argument(_Parameter, TyperArgument):  # type: ignore[misc]
    """A positional parameter that parses its own value."""

    def get_help_record(self, ctx: Any) -> tuple[str, str] | None:
        """Return its name as in the usage line, and its description; None if it is hidden."""
        return (str(self.metavar or self.name), f"{self.help or ''}{self._remarks(None)}") if not self.hidden else None


class Option(_Parameter, TyperOption):  # type: ignore[misc]
    """A named option that parses its own value."""

    def get_help_record(self, ctx: Any) -> tuple[str, str] | None:
        """Return its names with the placeholder of its value, and its description; None if it is hidden."""
        if self.hidden:
            return None
        names = ", ".join(sorted(self.opts, key=len)) + "".join(f" / {name}" for name in self.secondary_opts)
        value = "" if self.is_flag else f" {self.value_name}"
        return f"{names}{value}", f"{self.help or ''}{self._remarks(self.default)}"

    @property
    def value_name(self) -> str:
        """Return the placeholder of its value: as declared, the choices, or the last word of its name."""
        if self.metavar:
            return self.metavar
        if choices := choices_of(self.type_descriptor.annotation):
            return f"<{'|'.join(map(str, choices))}>"
        return self.opts[-1].removeprefix("--").split("-")[-1].upper()


class UnusedOption(Option):
    """An option that a command accepts without effect: hidden, and a notice says so when it is given."""

    def __init__(self, name: str, command: str, *, is_flag: bool) -> None:
        aside = f"unused_{name.removeprefix('--').replace('-', '_')}"
        super().__init__(
            param_decls=[aside, name],
            type_descriptor=None,  # type: ignore[arg-type]  # the value is not converted
            default=False if is_flag else None,
            is_flag=is_flag,
            expose_value=False,
            hidden=True,
        )
        self._notice = f'note: {name} has no effect on "{command}"; leave it out'

    def process_value(self, ctx: Any, value: Any) -> None:
        """If the option is given on the command line, print the notice that it has no effect.

        An empty value is refused, as by the commands on which the option has an effect.
        """
        if getattr(ctx.get_parameter_source(self.name), "name", "") == "COMMANDLINE":
            if _is_blank(value) and self.opts[0] not in EMPTY_SETTINGS:
                raise typer.BadParameter(_blank_message(self), ctx=ctx, param=self)
            if not ctx.resilient_parsing:  # completion
                note(self._notice)


def own(param: Any) -> Any:
    """Return a parameter that the library made from an annotation as an `Option` or `Argument` of this module."""
    if isinstance(param, _Parameter):
        return param
    kind: Any = Option if param.param_type_name == "option" else Argument
    made = kind.__new__(kind)
    made.__dict__.update(param.__dict__)
    return made


def _is_blank(value: Any) -> bool:
    ones = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, str) and not one.strip() for one in ones)


def _blank_message(param: Any) -> str:
    """Return the error message for an empty value, which a script with an unset variable would pass by mistake."""
    way = "write a value" if param.required else "write a value, or leave it out"
    return f"must not be empty: {way}"
