"""Finds names chosen by the operator in the places where names stand: objects of actions, fields of log lines, labels
of metrics, and texts that write KIND/NAME."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from eventd.resources.kinds.registry import KINDS

_NOUNS: Final = ("topic", "router", "queue", "stream", "group", "peer", "node", "callback", "subscription", "plugin")
_NAMED: Final = "|".join([*(f"{noun}s?" for noun in _NOUNS), *KINDS])
_IN_TEXT: Final = re.compile(
    rf"""(?ix)\b(?:{_NAMED})(?:
      /(?P<path>[\w.~%:>-]+)
    | \s(?P<quote>['"])(?P<quoted>[^'"\s]+)(?P=quote)
    | \s(?P<missing>[\w.>-]+)(?=\sdoes\snot\sexist)
    )"""
)
"""A name after its noun or kind: `EventPeer/beta`, a part of a path, in quotes, or in an error."""
_ARROW: Final = re.compile(r"->")
_DEAD_LETTER: Final = re.compile(r"event (\S+) of \w+ (\S+): ")
"""A dropped dead letter as the object of an action: its event and its owner, before the reason."""
_FIELD: Final = re.compile(r'(?<![\w.])([A-Za-z]\w*)=(?:"((?:[^"\\\n]|\\.)*)"|([^\s",}]+))')
"""A field of a log line that is not JSON, or a label of a metric."""
_MODULE: Final = (".py", ".md")


def names_in_text(text: str) -> Iterator[str]:
    """Yield the names in a text that stand after a noun or kind."""
    for found in _IN_TEXT.finditer(text):
        for group in ("path", "quoted", "missing"):
            name = (found[group] or "").rstrip(".:-")
            if name and not name.endswith(_MODULE):
                yield from router_parts(name)


def names_of_object(value: str) -> Iterator[str]:
    """Yield the names in the object of an action, such as `peer core/site-b`, `EventPeer beta` or `router a->b`.

    That of a dropped dead letter is `event e1 of peer beta: loop`.
    """
    if letter := _DEAD_LETTER.match(value):
        yield letter[1]
        yield from router_parts(letter[2])
        return
    noun, _, named = value.rpartition(" ")
    is_named = noun.split(" ")[-1] in {*_NOUNS, *KINDS}
    for part in re.split(r"[/,]", named) if noun else []:
        if is_named or not part.isdigit():  # the number of a job or a record is not a name
            yield from router_parts(part)


def router_parts(name: str) -> Iterator[str]:
    """Yield a name, and if it is that of a router that has no other name, such as `a->b`, the names of its topics."""
    yield name
    if "->" in name:
        yield from filter(None, _ARROW.split(name))


def fields_of(text: str) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the fields of log lines, which may be JSON after a prefix, or of labels of metrics."""
    for line in text.splitlines():
        fields = _json_of(line)
        if fields is None:
            for name, quoted, bare in _FIELD.findall(line):
                yield name, quoted or bare
            yield "", line
        else:
            yield from fields.items()


def _json_of(line: str) -> dict[str, Any] | None:
    start = line.find("{")
    if start < 0 or not line.endswith("}"):
        return None
    try:
        fields = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
