"""HTML and SVG as values: whatever is not markup already is escaped, so a hostile name can only ever be read.

Names, subjects and ids come from other nodes. Everything on the page is made by `element`, so there is one place that
could let one of them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from eventd.text.invisible import printable


class Markup(str):
    """Text that is HTML or SVG already. Only `element` and `join` make it."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
"""Text to be escaped, markup to be kept, any nesting of both, or nothing."""

Attribute: TypeAlias = "str | int | float | bool | None"

EMPTY = frozenset({"br", "col", "link", "meta"})
"""HTML elements that have no content. They are closed in themselves, so that the page is XML too."""


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One element with its children.

    `class_` stands for `class` and `aria_label` for `aria-label`. None and False leave an attribute out, True gives it
    its own name as value. A float is written with at most two decimals, which is fine enough for a pixel.
    """
    opening = tag + "".join(_attribute(name, value) for name, value in attributes.items())
    content = join(*children)
    if not content and (tag in EMPTY or tag in _SHAPES):
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{content}</{tag}>")


_SHAPES = frozenset({"circle", "line", "path", "rect", "use"})


def join(*children: Child) -> Markup:
    """The children one after another, text escaped."""
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield escape(printable(child))
        else:
            yield from _flat(child)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    if value is True:
        return f' {key}="{key}"'
    text = number(value) if isinstance(value, float) else str(value)
    return f' {key}="{escape(printable(text))}"'


def number(value: float) -> str:
    """A coordinate: two decimals at most, and none that are not needed."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
