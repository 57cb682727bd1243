"""The templates of pages.

Names, subjects, ids and payloads come from other nodes and clients, and are not trusted. Each value that a template
prints, unless it is Markup, is escaped, and characters that are invisible or change the direction of text are spelled
out; the environment below does both. Fields of forms are the exception: the filter `exact` only escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from eventd.console.rendering import formats
from eventd.text.invisible import printable
from eventd.text.plural import counted


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else printable(str(value))


def _exact(value: object) -> Markup:
    """Return a value for a field of a form, only escaped, so that the browser sends it back unchanged, invisible
    characters included."""
    return Markup(escape(str(value)))


@pass_context
def _moment(context: Context, text: str | None) -> Markup | str:
    return formats.moment(text, context["time_style"])


@pass_context
def _prose(context: Context, text: str, group: str = "") -> Markup:
    """Return a sentence as HTML, with links to the pages of the commands in it.

    `group`: the group that the sentence is about.
    """
    find = context.get("find_commands")
    return formats.prose(text, find(text, group) if find else ())


class PageEnvironment(Environment):
    """The environment of the templates, which looks first for members of JSON objects: `link.state` is `link["state"]`.

    Methods of dictionaries have precedence over members of their names, as in Jinja. Its own way tries the attribute
    first, whose absence costs more than all else about a value of a table.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a member of a dictionary, or an attribute of another object; undefined if there is none."""
        if type(obj) is dict and attribute not in _METHODS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


_METHODS: Final = frozenset(dir(dict))


class EmptiedContext(Context):
    """The values of one template, or of the macros that it imports: `render` empties it.

    Macros and the values that they were imported with refer to each other. Left alone, all that a page shows would stay
    in memory until the garbage collector runs, which it does rarely in a node: megabytes after some hundred pages.
    """

    def __init__(self, environment: Environment, parent: dict[str, Any], *rest: Any, **more: Any) -> None:
        super().__init__(environment, parent, *rest, **more)
        parent[_MADE].append(self)

    def empty(self) -> None:
        """Let go of all values."""
        self.vars.clear()
        self.parent = {}


_MADE: Final = "made_contexts"
"""The name under which templates have the list of the contexts of a rendering."""


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return what a template makes of these values, none of which is referred to afterwards."""
    made: list[EmptiedContext] = []
    try:
        return templates().get_template(template).render({**values, _MADE: made})
    finally:
        for context in made:
            context.empty()


@cache
def templates() -> Environment:
    """Return the templates of all pages, compiled when they are first used."""
    found = PageEnvironment(
        loader=PackageLoader("eventd.console.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.context_class = EmptiedContext
    plain: tuple[Any, ...] = (
        formats.milliseconds,
        formats.duration,
        formats.whole,
        formats.share,
        formats.size,
        formats.rate,
        formats.lines,
        formats.last_line,
        counted,
    )
    found.filters |= {one.__name__: one for one in plain} | {"moment": _moment, "exact": _exact, "prose": _prose}
    found.filters["sentence"] = formats.prose
    return found
