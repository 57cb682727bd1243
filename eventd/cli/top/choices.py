"""The choices that the operator has made by keys on the screen of `routerctl top`."""

from __future__ import annotations

from dataclasses import dataclass

from eventd.cli.top.views import VIEWS, View

ENTER, ESCAPE, ERASE = ("\r", "\n"), "\x1b", ("\x7f", "\b")
MOST_TYPED = 60
"""Maximum number of characters of a filter."""


@dataclass(slots=True)
class Choices:
    """The chosen table, its order, and which rows are shown. `typing`: pressed keys are text for the filter."""

    view: View
    sort: str = ""
    reverse: bool = False
    failing: bool = False
    part: str = ""
    typing: bool = False
    ended: bool = False

    def press(self, keys: str) -> bool:
        """Handle pressed keys. Returns whether they selected another table, whose rows must be read."""
        if keys.startswith(ESCAPE) and len(keys) > 1:
            return False  # an arrow or a function key
        before = self.view
        for key in keys:
            if self.typing:
                self._type(key)
            else:
                self._choose(key)
        return self.view is not before

    def _type(self, key: str) -> None:
        if key in ENTER or key == ESCAPE:
            self.typing = False
            self.part = "" if key == ESCAPE else self.part
        elif key in ERASE:
            self.part = self.part[:-1]
        elif key.isprintable() and len(self.part) < MOST_TYPED:
            self.part += key

    def _choose(self, key: str) -> None:
        if key == "q":
            self.ended = True
        elif key == "f":
            self.failing = not self.failing
        elif key == "/":
            self.typing, self.part = True, ""
        elif key == ESCAPE:
            self.part = ""
        elif key in [str(number) for number in range(1, len(VIEWS) + 1)]:
            self.view, self.sort, self.reverse = list(VIEWS.values())[int(key) - 1], "", False
        elif self.view.measure(key) is not None:
            self.reverse = not self.reverse if key == (self.sort or self.view.first) else False
            self.sort = key

    def describe(self, shown: int, total: int) -> str:
        """Return the line above the table."""
        measure = self.view.measure(self.sort or self.view.first)
        assert measure is not None
        words = [f"{self.view.name}: {shown} of {total}", f"by {measure.column.header}"]
        words += ["reversed"] if self.reverse else []
        words += ["failing only"] if self.failing else []
        words += [f"filter: {self.part}{'_' if self.typing else ''}"] if self.part or self.typing else []
        return ", ".join(words)

    def help(self) -> str:
        """Return the line below the table, which explains the keys."""
        if self.typing:
            return "type a part of a name; Enter keeps the filter, Esc removes it"
        letters = "".join(measure.letter for measure in self.view.measures)
        views = f"1-{len(VIEWS)} {' '.join(VIEWS)}"
        return f"q quit  / filter  f failing  sort {letters}  {views}"
