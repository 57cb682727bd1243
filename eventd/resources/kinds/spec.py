"""The base of the models of all kinds: names as written, strictness, and rules between fields of one section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from eventd.resources.reading.problems import FieldPath

WORDED = "worded"
"""The pydantic error type of a problem whose message is already written for the user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a spec; `path` leads to its field from the section or the field whose check yields it."""

    path: FieldPath
    message: str
    hint: str = ""


def wrong(message: str, hint: str = "") -> PydanticCustomError:
    """Return an error for a validator of a field to raise; `message` is shown after the field's path."""
    return worded([Finding((), message, hint)])


def worded(findings: Iterable[Finding]) -> PydanticCustomError:
    """Return one error that carries these findings, for a validator to raise."""
    return PydanticCustomError(WORDED, "see findings", {"findings": tuple(findings)})


class Spec(BaseModel):
    """The base of a spec and of each section in it: written in camelCase, no unknown fields, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )

    refused: ClassVar[Mapping[str, Finding]] = {}
    """By name, fields of other programs that are refused here with a message of their own."""

    def findings(self) -> Iterator[Finding]:
        """Yield contradictions between individually valid fields."""
        return iter(())

    def effective(self) -> dict[str, Any]:
        """Return the section with every default filled in, equal for all sections with the same meaning."""
        return self.model_dump(mode="json", by_alias=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if findings := tuple(self.findings()):
            raise worded(findings)
        return self


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a kind. `path` starts below `spec`: `auth.keys[].id`; `section` is the model that has the field."""

    path: str
    info: FieldInfo
    section: type[Spec]


def name_of(info: FieldInfo) -> str:
    """Return the name of a field as it is written in a spec, in camelCase."""
    return info.serialization_alias or info.alias or ""


def defaults_of(section: type[Spec]) -> dict[str, Any]:
    """Return the defaults of a section by field, in canonical form: `5m0s`, `8MiB`, 4.

    Nested sections, and fields without a default, are omitted.
    """
    written = section.model_construct().model_dump(mode="json", by_alias=True)
    inner = {name_of(info) for info in section.model_fields.values() if section_of(info)}
    return {name: value for name, value in written.items() if name not in inner and value is not None}


def section_of(info: FieldInfo) -> type[Spec] | None:
    """Return the model of the section, or of each section of the list, that the field holds; None for a plain value."""
    return _find_section(info.annotation)


def section_under(section: type[Spec], name: str) -> type[Spec] | None:
    """Return the model of the section, or list of sections, in the field `name` of a section; None if there is none."""
    return next((section_of(info) for info in section.model_fields.values() if name_of(info) == name), None)


def _find_section(annotation: Any) -> type[Spec] | None:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return annotation
    return next((found for part in get_args(annotation) if (found := _find_section(part))), None)


def walk(section: type[Spec], prefix: str = "") -> Iterator[SpecField]:
    """Yield every field of a section and of those nested in it, as declared; a section stands before its fields."""
    for info in section.model_fields.values():
        path = f"{prefix}{name_of(info)}"
        yield SpecField(path, info, section)
        if inner := section_of(info):
            inside = "[]." if get_origin(info.annotation) is tuple else "."
            yield from walk(inner, path + inside)
