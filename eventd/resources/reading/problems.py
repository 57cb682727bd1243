"""Problems of declared resources, with their place: `file:line: Kind/name field.path: message (hint)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.errors import Invalid
from eventd.text.plural import counted

FieldPath = tuple[str | int, ...]
"""The path of a field from the top of its resource: `("spec", "auth", "keys", 0, "id")`."""


def render_path(path: FieldPath) -> str:
    """Return a path as text: `spec.auth.keys[0].id`; other keys than identifiers are quoted: `annotations["a.b/c"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f'["{shorten(step)}"]'
    return text


def shorten(text: str, longest: int = 80) -> str:
    """Return the first `longest` characters of a text, with `…` if more follow."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def _one_line(text: str) -> str:
    """Return the text with line breaks and other unprintable characters as `\\uXXXX`."""
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of a source. `line` and `column` count from 1; 0: unknown.

    `path` is the field as `render_path` writes it, empty if the problem concerns no field. `resource` is `Kind/name` as
    far as known.
    """

    source: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""
    resource: str = ""

    def __str__(self) -> str:
        place = self.source
        if self.line:
            place += f":{self.line}"
        if self.column:
            place += f":{self.column}"
        what = " ".join(part for part in (self.resource, self.path) if part)
        text = f"{place}: {what}: {self.message}" if what else f"{place}: {self.message}"
        return _one_line(f"{text} ({self.hint})" if self.hint else text)


MOST_FOUND = 100
"""Number of problems after which the search for further ones ends."""
MOST_SHOWN = 20


class InvalidResources(Invalid):
    """Resources of the input have problems; nothing was written. `problems` are sorted by source, line and column."""

    code = "invalid_resources"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        count = len(self.problems)
        lines = [f"  {problem}" for problem in self.problems[:MOST_SHOWN]]
        if count > MOST_SHOWN:
            lines.append(f"  and {count - MOST_SHOWN} more: correct these first")
        least = "at least " if count >= MOST_FOUND else ""
        text = "\n".join(lines)
        super().__init__(f"{least}{counted(count, 'problem')} in the declared resources, nothing was changed:\n{text}")
