"""JSON Schemas of the kinds, for editors, generated from the models that validate them."""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from eventd.resources.kinds.registry import Kind
from eventd.resources.kinds.spec import Spec, defaults_of, name_of, section_of, walk

METADATA: Final = {
    "name": ("text", "The name of the resource, unique within its kind."),
    "annotations": ("texts by key", "Kept and shown with the resource; no effect on the node."),
    "labels": ("texts by key", "Kept and shown with the resource, to select it by: `get -l site=north`."),
}
"""The fields of `metadata` that may be written, with the type of each and what it is for."""


def kind_schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a resource of this kind."""
    spec = kind.spec.model_json_schema(by_alias=True)
    sections = {kind.spec.__name__: spec, **spec.pop("$defs", {})}
    for section in dict.fromkeys(field.section for field in walk(kind.spec)):
        _write_defaults(section, sections[section.__name__])
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": kind.name,
        "type": "object",
        "properties": {
            "apiVersion": {"const": kind.api_version},
            "kind": {"const": kind.name},
            "metadata": _metadata(kind),
            "spec": spec,
            "status": {"type": "object"},
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "$defs": {name: section for name, section in sections.items() if section is not spec},
    }


def _write_defaults(section: type[Spec], schema: dict[str, Any]) -> None:
    """Replace the defaults in a section's schema by their canonical form; remove empty defaults, and all titles."""
    schema.pop("title", None)
    defaults = defaults_of(section)
    for info in section.model_fields.values():
        written = schema["properties"][name_of(info)]
        written.pop("title", None)
        written.pop("default", None)
        if section_of(info) and "anyOf" in written:  # a section that may be absent
            written |= next(each for each in written.pop("anyOf") if "$ref" in each)
        if (default := defaults.get(name_of(info))) not in (None, "", [], {}):
            written["default"] = default


def _metadata(kind: Kind) -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": f"^{kind.names}$"},
            "annotations": texts,
            "labels": texts,
        },
        "required": ["name"],
    }
