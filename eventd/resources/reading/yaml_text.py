"""Reads and writes YAML.

Reading uses the parser's events instead of its objects: depth, aliases and repeated keys stay under control, and each
field keeps its line. Scalars follow the YAML 1.2 core schema: `no`, `on`, `12:30` and dates are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from eventd.resources.reading.nodes import (
    MAX_DEPTH,
    MAX_VALUES,
    Entry,
    Flaw,
    Mapping,
    Node,
    ParseError,
    Scalar,
    Sequence,
    mapping,
    repeated_key,
    sequence,
    text_flaw,
    too_deep,
)
from eventd.resources.reading.problems import shorten
from eventd.text.invisible import UNSEEN

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_STR = ("tag:yaml.org,2002:str", "!")
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_MAX_DIGITS = 40


def read_yaml(text: str, flaws: list[Flaw], most: int = MAX_VALUES) -> Iterator[Node]:
    """Yield the documents of a YAML text; mistakes after which the text can still be parsed are added to `flaws`.

    Raises ParseError for any other mistake, and when all documents together have more than `most` values, aliases
    expanded.
    """
    composer = _Composer(_events(text), flaws, most)
    while (document := composer.document()) is not None:
        yield document


def _events(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.reader.ReaderError as error:
        line, column = _place(text, error.position)
        raise ParseError(
            line, column, f"the character U+{_code(error.character):04X} is not allowed in YAML"
        ) from error
    except yaml.MarkedYAMLError as error:
        raise _malformed(error) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ParseError(1, 1, "is not YAML") from error


def _malformed(error: yaml.MarkedYAMLError) -> ParseError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = str(error.problem or "is not YAML").strip()
    if error.context:
        start = f" that began on line {error.context_mark.line + 1}" if error.context_mark else ""
        what = f"{what} ({str(error.context).strip()}{start})"
    return ParseError(line, column, f"is not valid YAML: {what}")


def _place(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")


class _Composer:
    """Builds one document after another from a stream of parser events."""

    def __init__(self, events: Iterator[Any], flaws: list[Flaw], most: int) -> None:
        self._events = events
        self._most = most
        self._flaws = flaws
        self._anchors: dict[str, Node | None] = {}
        self._values = 0

    def document(self) -> Node | None:
        """Return the next document; None at the end."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                return self._node(next(self._events), 1)
        return None

    def _node(self, event: Any, depth: int) -> Node:
        line, column = _start(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), line, column)
        if depth > MAX_DEPTH:
            raise too_deep(line, column)
        if event.anchor:
            self._anchors[event.anchor] = None  # an anchor is known inside its own node, but cannot be used there yet
        self._count(1, line, column)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(line, self._scalar(event, line, column))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, "seq")
            items = [self._node(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]
            node = sequence(line, column, items)
        else:
            self._check_tag(event, "map")
            node = mapping(line, column, self._entries(depth))
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _until(self, end: type[Any]) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _count(self, values: int, line: int, column: int) -> None:
        self._values += values
        if self._values > self._most:
            raise ParseError(
                line, column, f"contains more than {self._most} values (each use of an alias counts all of its values)"
            )

    def _alias(self, name: str, line: int, column: int) -> Node:
        node = self._anchors.get(name)
        if node is None:
            what = "stands inside itself" if name in self._anchors else "is not defined"
            raise ParseError(line, column, f"the alias *{shorten(name)} {what}")
        self._count(node.size, line, column)
        return node

    def _entries(self, depth: int) -> dict[str, Entry]:
        written: dict[str, Entry] = {}
        merged: list[dict[str, Entry]] = []
        for event in self._until(yaml.MappingEndEvent):
            line, column = _start(event)
            key = self._key(event, line, column)
            node = self._node(next(self._events), depth + 1)
            if key == "<<" and event.implicit[0]:
                merged += _mappings(node, line, column)
            elif key in written:
                self._flaws.append(repeated_key(key, line, column, written[key].line))
            else:
                written[key] = Entry(line, node)
        for entries in merged:  # written keys win, then the first mapping of the merge key
            for key, entry in entries.items():
                written.setdefault(key, entry)
        return written

    def _key(self, event: Any, line: int, column: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise ParseError(line, column, "a key must be text, not a list, a mapping or an alias")
        text: str = event.value
        self._note_text(text, line, column)
        return text

    def _scalar(self, event: yaml.ScalarEvent, line: int, column: int) -> str | int | float | bool | None:
        text: str = event.value
        self._note_text(text, line, column)
        if event.tag is not None and event.tag not in _STR:
            self._flaws.append(Flaw(line, column, f"the tag {shorten(event.tag)} is not supported; leave it out"))
            return text
        if event.tag is not None or not event.implicit[0]:
            return text
        if _INT.match(text) and len(text) > _MAX_DIGITS:
            self._flaws.append(Flaw(line, column, "the number is too long"))
            return text
        return resolve(text)

    def _note_text(self, text: str, line: int, column: int) -> None:
        if flaw := text_flaw(text):
            self._flaws.append(Flaw(line, column, flaw))

    def _check_tag(self, event: Any, own: str) -> None:
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{own}"):
            line, column = _start(event)
            self._flaws.append(Flaw(line, column, f"the tag {shorten(event.tag)} is not supported; leave it out"))


def resolve(text: str) -> str | int | float | bool | None:
    """Return the meaning of an unquoted scalar: null, a boolean, a number, or the text itself."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        bases = {"0o": 8, "0x": 16}
        return int(text, bases.get(text[:2], 10))
    if _FLOAT.match(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _mappings(node: Node, line: int, column: int) -> list[dict[str, Entry]]:
    """Return the entries of each mapping that a merge key refers to. Raises ParseError for anything else."""
    parts = node.items if isinstance(node, Sequence) else (node,)
    mappings = [part.entries for part in parts if isinstance(part, Mapping)]
    if len(mappings) != len(parts):
        raise ParseError(line, column, "<< takes a mapping or a list of mappings")
    return mappings


class _Dumper(yaml.SafeDumper):
    """Writes YAML without aliases, and quotes every text that a YAML 1.1 or 1.2 reader would take for another type."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Write the text; if one of its characters is invisible, all characters outside ASCII become escapes."""
        allowed, self.allow_unicode = self.allow_unicode, not UNSEEN.search(text)
        super().write_double_quoted(text, split)
        self.allow_unicode = allowed


def _text(dumper: _Dumper, text: str) -> Any:
    # Outside double quotes, invisible characters are not escaped, and some are read back as blanks or line breaks.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, '"' if UNSEEN.search(text) else None)


_Dumper.add_representer(str, _text)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))


def write_yaml(value: Any) -> str:
    """Return the value as YAML text that is read back as the same value; keys keep their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
