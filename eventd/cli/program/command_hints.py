"""What to do instead of a call that lacks something, or names a command that a group does not have."""

from __future__ import annotations

from typing import Any, Final

from eventd.cli.program.old_spellings import command_of

_ELSEWHERE: Final = {
    "subscription dead-letters": "`routerctl describe EventSubscription NAME` shows the latest dead letters, and"
    " `routerctl subscription retry NAME` runs them again",
}
"""What leads to the same, by commands that do not exist although commands like them do."""
_OF_ARGUMENTS: Final = dict.fromkeys(("KIND", "KIND/NAME", "KIND[.FIELD]"), "routerctl api-resources lists the kinds")
"""How to find out the values of an argument, by its metavar."""


def hint_for_command(path: str, name: str) -> str:
    """Return what to do instead of a command that the group at `path` does not have; empty if nothing is known."""
    return _ELSEWHERE.get(f"{command_of(path)} {name}", "")


def hint_for_argument(error: Any) -> str:
    """Return how to find out the argument that is missing; empty for any other error."""
    return _OF_ARGUMENTS.get(getattr(getattr(error, "param", None), "metavar", None) or "", "")
