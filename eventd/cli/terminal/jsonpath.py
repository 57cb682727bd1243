"""Templates of `-o jsonpath=…`: text with JSONPath queries in braces, as kubectl has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.errors import Invalid
from eventd.text.invisible import printable
from eventd.text.quoting import quoted

EXAMPLE: Final = "for example '{[*].metadata.name}'"
_BRACED: Final = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""", re.DOTALL)
_MEMBER: Final = re.compile(r"\$\.([A-Za-z_]\w*)")
_MOST: Final = 4096
"""Maximum number of characters of a template."""


class _Text(NamedTuple):
    text: str


class _Query(NamedTuple):
    """A compiled query. `of_list` is the query to use if the whole output is a list, which kubectl calls `.items`."""

    compiled: Any
    of_list: Any
    member: str = ""
    """The member of the output with which the query begins; empty if it does not begin with one."""


class _Range(NamedTuple):
    """Steps that are repeated for each match of a query."""

    query: _Query
    steps: tuple[_Step, ...]


_Step = _Text | _Query | _Range


class Template:
    """A parsed template. A path alone, such as `.spec.endpoint`, stands for `{.spec.endpoint}`.

    Raises Invalid for one that cannot be parsed.
    """

    def __init__(self, written: str) -> None:
        if len(written) > _MOST:
            raise Invalid(f"a jsonpath template has at most {_MOST} characters, not {len(written):,}")
        if not written.strip():
            raise Invalid("the jsonpath template is empty", hint=EXAMPLE)
        bare = "{" not in written and written.startswith((".", "$", "["))
        self._written = f"{{{written}}}" if bare else written
        pieces = list(self._pieces())
        self._steps = tuple(_parsed(pieces, nested=False))

    def render(self, value: Any) -> str:
        """Return the text for a value: all matches of a query, separated by blanks; absent members are left out."""
        return "".join(_rendered(self._steps, value))

    def absent_members(self, value: Any) -> list[str]:
        """Return the members with which queries begin, and which the output, an object, does not have."""
        if not isinstance(value, Mapping):
            return []
        queries = [step.query if isinstance(step, _Range) else step for step in self._steps]
        named = [query.member for query in queries if isinstance(query, _Query)]
        return [name for name in dict.fromkeys(named) if name and name not in value]

    def _pieces(self) -> Iterator[tuple[bool, str]]:
        """Yield the pieces of the template in order: for each, whether it is a query, and its text without the
        braces."""
        at = 0
        for found in _BRACED.finditer(self._written):
            yield from self._text(at, found.start())
            yield True, found[1].strip()
            at = found.end()
        yield from self._text(at, len(self._written))

    def _text(self, begin: int, end: int) -> Iterator[tuple[bool, str]]:
        text = self._written[begin:end]
        if any(brace in text for brace in "{}"):
            raise Invalid(f"unbalanced braces in the jsonpath template {quoted(self._written)}", hint=EXAMPLE)
        if text:
            yield False, text


def _parsed(pieces: list[tuple[bool, str]], *, nested: bool) -> Iterator[_Step]:
    """Yield the steps of pieces, which are taken from the list, up to the `{end}` of this level."""
    while pieces:
        is_query, text = pieces.pop(0)
        if not is_query:
            yield _Text(text)
        elif text == "end":
            if not nested:
                raise Invalid("the jsonpath template has {end} without {range …}")
            return
        elif text.startswith("range "):
            yield _Range(_compiled(text.removeprefix("range ")), tuple(_parsed(pieces, nested=True)))
        elif text[:1] in ("'", '"'):
            yield _Text(_literal(text))
        else:
            yield _compiled(text)
    if nested:
        raise Invalid("the jsonpath template lacks {end} after {range …}")


def _literal(text: str) -> str:
    """Return the text of a quoted literal, such as `"\\n"`."""
    inner = text[1:-1]
    if text[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        read = json.loads(f'"{inner}"', strict=False)
    except ValueError:
        raise Invalid(
            f"cannot read the text {text} in the jsonpath template", hint='write for example {"\\n"}'
        ) from None
    return str(read)


def _compiled(path: str) -> _Query:
    """Return a query for a path with or without its `$`: `.metadata.name`, `[*].spec`, `$..error`, `@.name`."""
    import jsonpath

    written = path.strip()
    rooted = written if written.startswith("$") else f"${written.removeprefix('@')}"
    if written[:1].isalnum():
        rooted = f"$.{written}"
    try:
        compiled = jsonpath.compile(rooted)
        of_list = jsonpath.compile(rooted.replace("$.items", "$", 1)) if rooted.startswith("$.items[") else compiled
        begins = _MEMBER.match(rooted)
        return _Query(compiled, of_list, begins[1] if begins else "")
    except (jsonpath.JSONPathError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Invalid(f"cannot read the JSONPath {quoted(path)}: {reason}", hint=EXAMPLE) from None


def _rendered(steps: Sequence[_Step], value: Any) -> Iterator[str]:
    for step in steps:
        match step:
            case _Text(text):
                yield text
            case _Query():
                yield " ".join(map(_shown, _matches(step, value)))
            case _Range(query, inner):
                for each in _matches(query, value):
                    yield from _rendered(inner, each)


def _matches(query: _Query, value: Any) -> list[Any]:
    import jsonpath

    try:
        return list((query.of_list if isinstance(value, list) else query.compiled).findall(value))
    except RecursionError:
        raise Invalid("a query of the jsonpath template has too many steps") from None
    except jsonpath.JSONPathError as error:  # for example a filter that compares what cannot be compared
        raise Invalid(f"the jsonpath template does not fit the output: {str(error).splitlines()[0]}") from None


def _shown(value: Any) -> str:
    """Return a match as text: a string without quotes, any other value as JSON.

    Unprintable characters are escaped, because a terminal may show it.
    """
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n")))
    return printable(json.dumps(value, ensure_ascii=False, default=str))
