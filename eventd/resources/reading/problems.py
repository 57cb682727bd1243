"""Problems of declared resources, with their place: `file:line: Kind/name field.path: message (hint)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.errors import Invalid

FieldPath = tuple[str | int, ...]
"""The path of a field from the top of its resource: `("spec", "auth", "keys", 0, "id")`."""


def render_path(path: FieldPath) -> str:
    """Return `spec.auth.keys[0].id`; keys with a dot or a blank stand in brackets: `metadata.annotations["a.b/c"]`."""
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
    """Return the text cut to a length, because values may be longer than any line."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def _one_line(text: str) -> str:
    """Return the text on one line, without characters that control a terminal."""
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem.

    `line` and `column` count from 1 and are 0 without a place: the resource is already stored, or the file could not be
    read. `path` is empty if the document itself is the problem. `resource` is `Kind/name` as far as known.
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
"""Problems after which the search ends."""
MOST_SHOWN = 20


class InvalidResources(Invalid):
    """Declared resources have problems; nothing was written. `problems` holds those found, sorted by place."""

    code = "invalid_resources"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        count = len(self.problems)
        lines = [f"  {problem}" for problem in self.problems[:MOST_SHOWN]]
        if count > MOST_SHOWN:
            lines.append(f"  and {count - MOST_SHOWN} more: correct these first")
        noun = (
            "1 problem" if count == 1 else f"at least {count} problems" if count >= MOST_FOUND else f"{count} problems"
        )
        text = "\n".join(lines)
        super().__init__(f"{noun} in the declared resources, nothing was changed:\n{text}")
