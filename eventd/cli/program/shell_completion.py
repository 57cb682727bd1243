"""The options of routerctl that install or show the completion of a shell: of the named one, or of the present one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from eventd.cli.program.params import Option
from eventd.errors import Invalid

SHELLS: Final = ("bash", "zsh", "fish")
OPTIONS: Final = ("--install-completion", "--show-completion")
PRESENT: Final = "present"
"""The value of an option that names no shell."""
_MENU: Final = "zstyle ':completion:*' menu select"


class CompletionOption(Option):
    """`--install-completion SHELL` or `--show-completion SHELL`, which ends the command."""

    def __init__(self, name: str) -> None:
        install = name == OPTIONS[0]
        verb = "Install" if install else "Print"
        super().__init__(
            param_decls=[name.removeprefix("--").replace("-", "_"), name],
            type_descriptor=None,  # type: ignore[arg-type]  # the value is not converted
            metavar="[SHELL]",
            expose_value=False,
            is_eager=True,
            autocompletion=lambda _context, _words, incomplete: [
                shell for shell in SHELLS if shell.startswith(incomplete)
            ],
            help=f"{verb} the completion of bash, zsh or fish (default: this shell), and exit.",
        )
        self._installs = install

    def get_help_record(self, ctx: Any) -> tuple[str, str]:
        """Return its name with the placeholder of its value, and its description."""
        return f"{self.opts[-1]} {self.metavar}", str(self.help)

    def process_value(self, ctx: Any, value: Any) -> None:
        """Install or print the completion, if the option is given, and exit."""
        if not value or ctx.resilient_parsing:
            return
        shell = _present_shell() if value == PRESENT else str(value)
        if shell not in SHELLS:
            raise typer.BadParameter(f"{shell!r} is not one of {', '.join(SHELLS)}", ctx=ctx, param=self)
        program = ctx.find_root().info_name
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        from typer._completion_shared import get_completion_script, install, install_zsh

        if not self._installs:
            print(get_completion_script(prog_name=program, complete_var=variable, shell=shell))
            raise typer.Exit
        if shell == "zsh":
            with _own_lines_alone(Path.home() / ".zshrc"):
                path = install_zsh(prog_name=program, complete_var=variable, shell=shell)
        else:
            _, path = install(shell=shell, prog_name=program, complete_var=variable)
        print(f"completion of {shell} installed in {path}: it takes effect in new shells")
        raise typer.Exit


@contextmanager
def _own_lines_alone(settings: Path) -> Iterator[None]:
    """Remove the line that typer adds to the user's settings of zsh, which sets a menu for the completion of all
    programs."""
    was_there = settings.is_file() and _MENU in settings.read_text().splitlines()
    yield
    if not was_there:
        kept = [line for line in settings.read_text().splitlines() if line != _MENU]
        settings.write_text("\n".join(kept).rstrip("\n") + "\n")


def _present_shell() -> str:
    """Return the name of the shell that runs this command. Raises `Invalid` if it cannot be found."""
    from typer._completion_shared import _get_shell_name

    shell = _get_shell_name()
    if shell is None:
        raise Invalid("the present shell is not known", hint=f"name it: {OPTIONS[0]} {'|'.join(SHELLS)}")
    return shell


def named_shell(args: Sequence[str]) -> list[str]:
    """Return arguments in which each of `OPTIONS` has a value."""
    words: list[str] = []
    for at, word in enumerate(args):
        words.append(word)
        if word in OPTIONS and (at + 1 == len(args) or args[at + 1].startswith("-")):
            words.append(PRESENT)
    return words
