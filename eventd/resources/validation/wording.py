"""Words the problems that pydantic finds in specs, for people who write resources.

Values are shown only where they help and cannot be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import ErrorDetails, ValidationError

from eventd.resources.kinds.spec import WORDED, Finding, Spec, name_of, section_under, walk
from eventd.resources.reading.problems import MOST_FOUND, FieldPath, render_path, shorten
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import with_value
from eventd.text.validation import message_of

_MESSAGES: Final = {
    "dict_type": "must be a mapping of texts",
    "model_type": "must be a mapping of fields",
    "value_error": "is not valid",
}
"""The messages for types of errors whose usual message would not be clear to a user."""


def _choices(context: dict[str, Any]) -> str:
    return str(context["expected"]).replace("''", "blank").replace("'", "")


def findings(error: ValidationError, spec: type[Spec]) -> Iterator[Finding]:
    """Yield the problems of a spec, with paths from the top of the resource, for its first MOST_FOUND errors."""
    for detail in error.errors(include_url=False)[:MOST_FOUND]:
        yield from _reword(detail, spec)


def _reword(detail: ErrorDetails, spec: type[Spec]) -> Iterator[Finding]:
    path: FieldPath = ("spec", *detail["loc"])
    context: dict[str, Any] = detail.get("ctx", {})
    if detail["type"] == WORDED:
        for finding in context["findings"]:
            message = with_value(finding.message, None if finding.path else detail["input"], *detail["loc"])
            yield Finding((*path, *finding.path), message, finding.hint)
    elif detail["type"] == "extra_forbidden":
        yield _unknown(path, spec)
    else:
        if "expected" in context:
            context = {**context, "expected": _choices(context)}
        text = message_of(detail["type"], context, **_MESSAGES)
        yield Finding(path, with_value(text, detail["input"], *detail["loc"]), _hint(detail))


def _hint(detail: ErrorDetails) -> str:
    value, kind = detail["input"], detail["type"]
    if any("secret" in str(step).lower() for step in detail["loc"]):
        return ""
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind in ("int_type", "bool_type") and isinstance(value, str) and _is_plain(kind, value):
        return "leave the quotes out"
    if kind == "tuple_type" and isinstance(value, str):
        return "write [...] around it, or each value on a line, after a dash"
    if kind == "literal_error" and isinstance(value, str):
        expected = _choices(detail.get("ctx", {})).replace(" or ", ", ").split(", ")
        return did_you_mean(shorten(value.lower()), expected)
    return ""


def _is_plain(kind: str, value: str) -> bool:
    return value.isdigit() if kind == "int_type" else value in ("true", "false")


def _unknown(path: FieldPath, spec: type[Spec]) -> Finding:
    """Return the problem of an unknown field: refused on purpose, misspelt, or in the wrong section."""
    section, name = _section_at(spec, path[1:-1]), shorten(str(path[-1]))
    if name in section.refused:
        refusal = section.refused[name]
        return Finding(path, refusal.message, refusal.hint)
    known = [name_of(info) for info in section.model_fields.values()]
    lowered = {other.lower(): other for other in known}
    if close := difflib.get_close_matches(name.lower(), lowered, 1, 0.7):
        return Finding(path, "unknown field", f"did you mean {lowered[close[0]]}?")
    elsewhere = [field.path for field in walk(spec) if field.path.rpartition(".")[2].lower() == name.lower()]
    if elsewhere:
        return Finding(path, "unknown field", f"did you mean spec.{elsewhere[0]}?")
    return Finding(path, "unknown field", f"known in {render_path(path[:-1])}: {', '.join(known)}")


def _section_at(spec: type[Spec], path: FieldPath) -> type[Spec]:
    section = spec
    for step in path:
        section = section_under(section, str(step)) or section
    return section
