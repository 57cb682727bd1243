"""What the fields of a kind mean, as the models declare it: for people who write resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import PlainSerializer

from eventd.errors import NotFound
from eventd.resources.kinds.registry import Kind
from eventd.resources.kinds.schema import METADATA
from eventd.resources.kinds.spec import Spec, SpecField, defaults_of, name_of, section_of, walk
from eventd.text.did_you_mean import did_you_mean
from eventd.text.duration import format_duration
from eventd.text.quoting import quoted
from eventd.text.size import format_size


class Explained(NamedTuple):
    """One field of a kind. `path` begins below the resource: `spec.auth.keys[].id`; `type` is a word for people."""

    path: str
    type: str
    required: bool
    default: str
    description: str


def explain(kind: Kind, path: str = "") -> list[Explained]:
    """Return the field at `path` of a kind, and after it all fields below it; without a path, all fields of the kind.

    A path is written with or without `spec.` and `[]`: `spec.auth.keys[].id`, `auth.keys.id`. Raises NotFound.
    """
    every = list(_fields(kind))
    wanted = _plain(path)
    if not wanted:
        return every
    for name in (wanted, f"spec.{wanted}"):
        if found := [
            field for field in every if _plain(field.path) == name or _plain(field.path).startswith(f"{name}.")
        ]:
            return found
    known = [field.path for field in every]
    meant = did_you_mean(f"spec.{wanted.removeprefix('spec.')}", map(_plain, known))
    raise NotFound(
        f"{kind.name} has no field {quoted(path)}",
        hint=meant or f"see routerctl explain {kind.name}",
    )


def _plain(path: str) -> str:
    return path.strip().strip(".").replace("[]", "")


def _fields(kind: Kind) -> Iterator[Explained]:
    yield Explained("metadata", "section", True, "", "The name of the resource, and notes about it.")
    for name, (words, text) in METADATA.items():
        yield Explained(f"metadata.{name}", words, name == "name", "", text)
    yield Explained("spec", "section", True, "", kind.declares)
    defaults: dict[type[Spec], dict[str, Any]] = {}
    for field in walk(kind.spec):
        known = defaults.setdefault(field.section, defaults_of(field.section))
        default = known.get(name_of(field.info))
        yield Explained(
            f"spec.{field.path}",
            _type_of(field),
            field.info.is_required(),
            _shown(default),
            field.info.description or "",
        )


def _shown(default: Any) -> str:
    """Return a default as it is written in a resource; empty for an empty one."""
    if default in (None, "", [], {}):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)


def _type_of(field: SpecField) -> str:
    """Return a word or a few for the type of a field: `text`, `list of texts`, `one of keep, drop`."""
    annotation = field.info.annotation
    several = get_origin(annotation) is tuple
    if section_of(field.info):
        return "list of sections" if several else "section"
    if several:
        choices = _choices(get_args(annotation)[0])
        return f"list of {', '.join(choices)}" if choices else f"list of {_word(get_args(annotation)[0])}s"
    if choices := _choices(annotation):
        return f"one of {', '.join(choices)}" if len(choices) > 1 else f"only {choices[0]}"
    return _formatted(field.info.metadata) or _word(annotation)


_FORMATS: Final = {format_duration: "duration", format_size: "size"}
_WORDS: Final[dict[Any, str]] = {str: "text", int: "number", float: "number", bool: "true or false"}


def _formatted(metadata: Iterable[Any]) -> str | None:
    """Return `duration` or `size` if the field's values are written as such; None otherwise."""
    functions = (each.func for each in metadata if isinstance(each, PlainSerializer))
    return next((_FORMATS[function] for function in functions if function in _FORMATS), None)


def _choices(annotation: Any) -> list[str]:
    """Return the words that a type allows; empty if it is not a choice."""
    return [word for word in get_args(annotation) if word] if get_origin(annotation) is Literal else []


def _word(annotation: Any) -> str:
    """Return the word for a type that is no choice: its own, or that of the type which it wraps."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return "texts by key"
    if origin is tuple:
        return f"list of {_word(inner[0])}s"
    if origin is Annotated:
        return _formatted(inner[1:]) or _word(inner[0])
    return next((_word(part) for part in inner if part is not type(None)), "value")
