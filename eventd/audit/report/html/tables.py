"""Tables with real headers, and lists that are cut to a length, saying how much was cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eventd.audit.report.figures import counted
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.standing import SIGNS, State


@dataclass(frozen=True, slots=True)
class Column:
    """A header, and how its cells are set: numbers to the right, wide text broken anywhere."""

    header: str
    number: bool = False
    wide: bool = False

    @property
    def class_(self) -> str | None:
        return "n" if self.number else "wide" if self.wide else None


def number(header: str) -> Column:
    """A column of figures."""
    return Column(header, number=True)


def wide(header: str) -> Column:
    """A column of words or ids."""
    return Column(header, wide=True)


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Child]],
    *,
    most: int = 200,
    noun: str = "row",
    where: str = "report.json",
    class_: str | None = None,
) -> Markup:
    """A table whose first column names its rows; beyond `most` rows it says how many more there are, and where."""
    lines = list(rows)
    body = [_row(columns, line) for line in lines[:most]]
    if (more := len(lines) - most) > 0:
        words = f"and {counted(more, f'more {noun}')}, in {where}"
        body.append(element("tr", element("td", words, colspan=len(columns)), class_="more"))
    head = element("tr", (element("th", c.header, scope="col", class_=c.class_) for c in columns))
    whole = element("table", element("caption", caption), element("thead", head), element("tbody", body), class_=class_)
    return scrolling(caption, whole)


def _row(columns: Sequence[Column], line: Sequence[Child]) -> Markup:
    first, *others = zip(columns, line, strict=True)
    cells = (element("td", cell, class_=column.class_) for column, cell in others)
    return element("tr", element("th", first[1], scope="row", class_=first[0].class_), cells)


def scrolling(label: str, content: Child) -> Markup:
    """What may be wider than the page, in a frame that scrolls by hand, wheel and keyboard."""
    return element("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)


def folded(words: Child, *content: Child, open: bool = False, class_: str | None = None) -> Markup:
    """A line that unfolds what is behind it, without a script; print shows it unfolded."""
    return element("details", element("summary", words), *content, open=open, class_=class_)


def sign(state: State, *words: Child) -> Markup:
    """A state's sign and words, in its colour."""
    return element("span", SIGNS[state], " ", *words, class_=f"sign {state}")


def swatch(fill: str) -> Markup:
    """A patch of a colour, for the key of a drawing."""
    return element("span", "", class_=f"swatch fill-{fill}", aria_hidden="true")


def identifier(text: str) -> Markup:
    """An id, a digest or the name of a file, as it is."""
    return element("code", text, class_="id")


def identifiers(ids: Sequence[str], total: int, *, shown: int = 3, most: int = 500) -> Markup:
    """The first ids at once, more of them folded; beyond `most` it says how many there are in all."""
    at_once = shown if total > shown + 1 else total
    first, rest = ids[:at_once], ids[at_once:most]
    beyond = total - len(first) - len(rest)
    if not rest:
        return join(_listed(first), element("span", f"and {beyond:,} more", class_="soft") if beyond else None)
    tail = element("p", f"and {beyond:,} more in the file below", class_="soft") if beyond else None
    return join(_listed(first), folded(f"{total - len(first):,} more", _listed(rest), tail))


def _listed(ids: Sequence[str]) -> Markup | None:
    return element("ul", (element("li", identifier(one)) for one in ids), class_="ids") if ids else None


def way(source: str, peer: str) -> Markup:
    """From whom to whom, each name with a writing direction of its own."""
    return join(_name(source), " → ", _name(peer)) if peer else _name(source)


def _name(name: str) -> Markup:
    return element("bdi", name)


def definitions(pairs: Iterable[tuple[str, Child]], class_: str) -> Markup:
    """Terms with what they stand for."""
    listed = (element("div", element("dt", term), element("dd", told)) for term, told in pairs)
    return element("dl", listed, class_=class_)


def section(anchor: str, title: str, *content: Child) -> Markup:
    """A part of the page that its list of contents leads to."""
    return element("section", element("h2", title, id=anchor), *content, aria_labelledby=anchor)


def paragraph(*words: Child, class_: str | None = None) -> Markup:
    """Some sentences."""
    return element("p", *words, class_=class_)
