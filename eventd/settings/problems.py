"""Problems of the settings, and the form in which settings are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventd.errors import SettingsError
from eventd.text.user_info import without_user_info


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One problem and its origin: a flag, a variable, a settings file, or `FILE:LINE: KEY`.

    `usage`: it is in the value of a flag.
    """

    origin: str
    message: str
    usage: bool = False

    def __post_init__(self) -> None:
        """Mask the user info of URLs: messages quote values."""
        object.__setattr__(self, "message", without_user_info(self.message))

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


class BadSettings(SettingsError):
    """The settings have problems; `problems` holds all of them."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            str(problems[0]) if len(problems) == 1 else f"{len(problems)} problems in the settings:{lines}"
        )

    @property
    def usage(self) -> bool:
        """Return whether all problems are on the command line."""
        return all(problem.usage for problem in self.problems)


class SettingRow(NamedTuple):
    """One setting in a form that is safe to show: without keys and passwords."""

    name: str
    value: str
    origin: str
