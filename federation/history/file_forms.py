"""The JSON of files that third parties check: reads it, and says in plain words why it is not what was expected."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from federation.errors import MalformedHistory
from federation.history.forms import quote

_KINDS: Final = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
_TYPES: Final = {"object": "an object", "array": "an array", "null": "null"} | {
    kind.__name__: name for kind, name in _KINDS.items()
}
_WRONG: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_MISSING: Final = re.compile(r"missing required field `([^`]*)`")
_UNKNOWN: Final = re.compile(r"contains unknown field `(.*?)`(?: - at `|$)", re.DOTALL)
_PLACE: Final = re.compile(r"at `\$\.?([^`]*)`")


class _Twice(ValueError):
    """A member stands twice in one object."""


def read_json(data: bytes) -> Any:
    """Return the JSON value of a file. Raises MalformedHistory.

    Refuses two members with the same name, because another program might read the other one.
    """
    if not data.strip():
        raise MalformedHistory("it is empty", reason="file")
    try:
        return json.loads(data.decode(), object_pairs_hook=_members)
    except UnicodeDecodeError:
        why = "it is not a text in UTF-8"
    except json.JSONDecodeError as error:
        why = f"it is not JSON, at line {error.lineno}, column {error.colno}: {error.msg}"
    except _Twice:
        why = "a member stands twice in one object"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError:
        why = "it has a number with too many digits"
    raise MalformedHistory(why, reason="file")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Twice
    return members


def describe_form(value: Any, error: str, form: str) -> str:
    """Return why a JSON value is not a file of the format `form`, which msgspec has refused with `error`."""
    if not isinstance(value, dict):
        return f"it is {_json(_KINDS.get(type(value), 'null'))}, and not an object"
    if value.get("format") != form:
        given = value.get("format")
        return f"its format is {quote(str(given))}, not {form}" if given else f"it does not name its format, {form}"
    if missing := _MISSING.search(error):
        return f"it has no member {missing[1]}{_within(error)}"
    if unknown := _UNKNOWN.search(error):
        return f"it has a member {quote(unknown[1])}, which the format does not have{_within(error)}"
    place = _PLACE.search(error)
    which = f"its member {place[1]}" if place else "one of its members"
    if wrong := _WRONG.search(error):
        expected = " or ".join(_TYPES.get(kind, kind) for kind in wrong[1].split(" | "))
        return f"{which} is {_json(_TYPES.get(wrong[2], wrong[2]))}, and not {expected}"
    return f"{which} has a wrong form: {error.partition(' - at ')[0]}"


def _json(kind: str) -> str:
    """Return a kind of values with the language that has it: `a JSON string`."""
    article, blank, noun = kind.partition(" ")
    return f"a JSON {noun}" if blank else f"JSON {article}"


def _within(error: str) -> str:
    place = _PLACE.search(error)
    return f" in {place[1]}" if place else ""
